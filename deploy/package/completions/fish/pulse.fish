# Completion of pulse for fish. The program itself knows its commands and flags.
function __pulse_complete
    set -l words (commandline --tokenize --current-process --cut-at-cursor)
    $words[1] complete -- $words[2..-1] (commandline --current-token --cut-at-cursor) 2>/dev/null
end
complete --command pulse --arguments '(__pulse_complete)'
