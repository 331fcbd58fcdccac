#!/usr/bin/env bash
# The Tab key, as somebody presses it: bash, zsh and fish in a terminal of tmux, with what `make install`
# puts where each of them looks.
#
#   tests/deploy/try_completion.sh [SHELL...]     B= names the build (default build)
set -euo pipefail
cd "$(dirname "$0")/../.."
B=${B:-build}
make --no-print-directory B="$B" "$B/lace" "$B"/share/completion.{bash,zsh,fish} >/dev/null
work=$(mktemp -d)
mux() { env -u TMUX tmux -L "lace-completion-$$" -f /dev/null "$@"; }
trap 'mux kill-server 2>/dev/null || true; rm -rf "$work"' EXIT

# A place of its own for the program, its completion and a file to complete.
mkdir -p "$work/bin" "$work/zsh" "$work/config/fish/completions" "$work/here" "$work/home"
cp "$B/lace" "$work/bin/"
cp "$B/share/completion.zsh" "$work/zsh/_lace"
cp "$B/share/completion.fish" "$work/config/fish/completions/lace.fish"
cp models/tales-4m.gguf "$work/here/small-model.gguf"
printf '%s\n' "PS1='> '" ". '$PWD/$B/share/completion.bash'" >"$work/bashrc"
printf '%s\n' "PS1='> '" "fpath=('$work/zsh' \$fpath)" 'autoload -U compinit && compinit -u' >"$work/home/.zshrc"
printf '%s\n' 'function fish_prompt; echo "> "; end' 'set -g fish_greeting' \
    'set -g fish_autosuggestion_enabled 0' >"$work/config/fish/config.fish"

# screen_shows WORD: waits until it is there.
screen_shows() {
    for _ in $(seq 100); do
        ! mux capture-pane -p -J | grep -qF -- "$1" || return 0
        sleep 0.2
    done
    echo "try_completion: $shell does not show '$1', but:" >&2
    mux capture-pane -p | grep . >&2
    return 1
}

# pressed TYPED SHOWN: the line typed and then Tab; what must be on the screen.
pressed() {
    mux send-keys C-u C-l
    mux send-keys -l -- "$1"
    mux send-keys Tab
    screen_shows "$2"
    echo "$shell: '$1' Tab: '$2'"
    mux send-keys C-c
}

for shell in ${*:-bash zsh fish}; do
    command -v "$shell" >/dev/null || { echo "try_completion: $shell is not installed" >&2; exit 1; }
    case $shell in
    bash) command="bash --noprofile --rcfile '$work/bashrc' -i" ;;
    zsh) command="zsh -i" ;;
    fish) command="fish -i" ;;
    esac
    mux new-session -d -x 160 -y 40 "cd '$work/here' && env PATH='$work/bin':\$PATH HOME='$work/home' \
        ZDOTDIR='$work/home' XDG_CONFIG_HOME='$work/config' XDG_DATA_HOME='$work/home' $command"
    screen_shows '>'
    pressed 'lace tok' 'lace tokenize'
    pressed 'lace run --no-d' 'lace run --no-display-prompt'
    pressed 'lace bench serve --conc' 'lace bench serve --concurrency'
    pressed 'lace run small' 'lace run small-model.gguf'
    mux kill-server
done
echo "try_completion: all is well"
