"""Which colours of the page must differ by how much, and how much two colours do."""

# JavaScript: the colours of the page's style by their names.
COLORS = """Object.fromEntries([...document.styleSheets[0].cssRules]
    .flatMap((rule) => rule.selectorText === ':root' ? [...rule.style] : [])
    .filter((name) => name.startsWith('--')).map((name) => [name.slice(2),
        getComputedStyle(document.documentElement).getPropertyValue(name)]))"""

# (text, background, ratio), by the style's own names: WCAG 2 AA, 4.5 for text, 3 for drawings.
CONTRASTS = [(text, background, 4.5)
             for text in ("text", "quiet", "link", "ok", "slow", "hang")
             for background in ("background", "panel")]
CONTRASTS += [("slow", "slow-background", 4.5), ("hang", "hang-background", 4.5),
              ("text", "slow-background", 4.5), ("text", "hang-background", 4.5),
              ("background", "text", 4.5), ("bar", "background", 3), ("bar", "panel", 3)]


def luminance(color):
    def linear(part):
        part /= 255
        return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
    red, green, blue = (linear(int(color[at:at + 2], 16)) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)
