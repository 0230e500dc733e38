// Builds and updates the page. Text is inserted as text only, never as HTML. Unchanged nodes are
// not touched, so focus, selection and scroll position stay.

const SVG = 'http://www.w3.org/2000/svg';
const byId = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
const element = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);
const drawn = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

function put(node, content) {
  if (node.shown === content) return;
  node.shown = content;
  node.textContent = content;
}

function mark(node, name, value) {
  if (node.getAttribute(name) === value) return;
  if (value === null) node.removeAttribute(name);
  else node.setAttribute(name, value);
}

// Names may be long: the tooltip has the whole name.
function putName(node, content) {
  put(node, content);
  mark(node, 'title', content.length > 24 ? content : null);
}

// Keeps one child of `parent` per item, in order: made once per key, then updated.
function reconcile(parent, items, keyOf, make, update) {
  const old = parent.parts || new Map();
  const parts = new Map();
  const pairs = items.map((item) => {
    let key = keyOf(item);
    while (parts.has(key)) key += ' again';
    const part = old.get(key) || make(item);
    parts.set(key, part);
    return [part, item];
  });
  for (const [key, part] of old) if (!parts.has(key)) part.node.remove();
  parent.parts = parts;
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  let place = parent.firstChild;
  for (const [part, item] of pairs) {
    if (part.node === place) place = place.nextSibling;
    else parent.insertBefore(part.node, place);
    update(part, item);
  }
  if (focused !== null && document.activeElement !== focused && focused.isConnected) {
    focused.focus({preventScroll: true});
  }
}

// Makes a table with columns {title, unseen?, left?, kind?, tip?, node?}. Wide tables scroll, also
// by keyboard.
function table(caption, columns) {
  const head = element('tr');
  for (const column of columns) {
    const cell = element('th', {scope: 'col', class: [column.left ? 'left' : '', column.kind || ''].join(' ').trim()});
    if (column.tip) cell.title = column.tip;
    if (column.unseen) cell.append(element('span', {class: 'unseen'}, column.title));
    else cell.append(column.title);
    if (column.node) cell.append(column.node);
    head.append(cell);
  }
  const body = element('tbody');
  const node = element('div', {class: 'scroll', role: 'region', tabindex: '0', 'aria-label': caption},
      element('table', {}, element('caption', {}, caption), element('thead', {}, head), body));
  return {node, body};
}
