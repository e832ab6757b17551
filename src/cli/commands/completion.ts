import { type Command, defineCommand, UsageError } from "../command.ts";

/*
 * The scripts read commands and options from `--help` of the installed program, so a new option needs no new script.
 */

/** Pattern for sed: name and summary of a command in a line of `procwire --help`. */
const COMMAND_PATTERN = String.raw`^  \([a-z][a-z-]*\)  *\(.*\)$`;
/** Shell filter that prints the options of a help text: all options of each line that starts with an option. */
const OPTIONS_FILTER = String.raw`sed -n 's/^ *\(-.*\)/\1/p' | sed 's/  .*//' | grep -o -e '--[a-z][a-z-]*'`;

const BASH = String.raw`# bash completion of procwire: source <(procwire completion bash)
_procwire() {
  local current=${"$"}{COMP_WORDS[COMP_CWORD]} words
  if [ "$COMP_CWORD" -eq 1 ]; then
    words=$("${"$"}{COMP_WORDS[0]}" --help 2>/dev/null | sed -n 's/${COMMAND_PATTERN}/\1/p')
  elif [[ $current == -* ]]; then
    words=$("${"$"}{COMP_WORDS[0]}" "${"$"}{COMP_WORDS[1]}" --help 2>/dev/null | ${OPTIONS_FILTER})
  fi
  # Without a match, bash completes file names.
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _procwire procwire
`;

const ZSH = String.raw`#compdef procwire
# zsh completion of procwire: source <(procwire completion zsh)
_procwire() {
  local -a found
  if (( CURRENT == 2 )); then
    found=("${"$"}{(@f)$($words[1] --help 2>/dev/null | sed -n 's/${COMMAND_PATTERN}/\1:\2/p')}")
    _describe command found
  elif [[ $words[CURRENT] == -* ]]; then
    found=("${"$"}{(@f)$($words[1] $words[2] --help 2>/dev/null | ${OPTIONS_FILTER})}")
    compadd -- $found
  else
    _files
  fi
}
compdef _procwire procwire
`;

const FISH = String.raw`# fish completion of procwire: procwire completion fish | source
function __procwire_commands
  set -l words (commandline -opc)
  $words[1] --help 2>/dev/null | sed -n 's/${COMMAND_PATTERN}/\1\t\2/p'
end
function __procwire_options
  set -l words (commandline -opc)
  $words[1] $words[2] --help 2>/dev/null | ${OPTIONS_FILTER}
end
complete -c procwire -n __fish_use_subcommand -f -a '(__procwire_commands)'
complete -c procwire -n 'not __fish_use_subcommand; and string match -q -- "-*" (commandline -ct)' -f -a '(__procwire_options)'
`;

const SCRIPTS: Readonly<Record<string, string>> = { bash: BASH, zsh: ZSH, fish: FISH };

const HELP = `Usage: procwire completion bash|zsh|fish

Print a script that completes commands, options and file names in that shell.

Examples:
  source <(procwire completion bash)     # in ~/.bashrc
  source <(procwire completion zsh)      # in ~/.zshrc, after compinit
  procwire completion fish | source      # in ~/.config/fish/config.fish
`;

export const command: Command = defineCommand({
  help: HELP,
  options: {},

  async run(_, [shell, ...others]) {
    const script = shell !== undefined && Object.hasOwn(SCRIPTS, shell) ? SCRIPTS[shell] : undefined;
    if (script === undefined || others.length > 0)
      throw new UsageError(`give one shell: ${Object.keys(SCRIPTS).join(", ")}`);
    process.stdout.write(script);
    return 0;
  },
});
