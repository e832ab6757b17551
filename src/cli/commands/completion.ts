import { type Command, defineCommand, UsageError } from "../command.ts";
import type { HelpPage } from "../help/help-page.ts";

/*
 * The scripts read options from `procwire help --options COMMAND`, and all other words from `procwire help --candidates
 * WORD...`, of the installed program. A new option or command needs no new script.
 */

const BASH = `# bash completion of procwire: source <(procwire completion bash)
_procwire() {
  local current=${"$"}{COMP_WORDS[COMP_CWORD]} words
  local -a before
  if [[ $current == -* ]]; then
    words=$("${"$"}{COMP_WORDS[0]}" help --options "${"$"}{COMP_WORDS[@]:1:2}" 2>/dev/null)
  else
    # COMP_WORDS splits URLs at their colons.
    read -ra before <<< "${"$"}{COMP_LINE:0:COMP_POINT-${"$"}{#current}}"
    words=$("${"$"}{COMP_WORDS[0]}" help --candidates "${"$"}{before[@]:1}" 2>/dev/null | cut -f 1)
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
  if [[ $words[CURRENT] == -* ]]; then
    found=("${"$"}{(@f)$($words[1] help --options $words[2,3] 2>/dev/null)}")
    compadd -- $found
    return
  fi
  found=("${"$"}{(@f)$($words[1] help --candidates "${"$"}{(@Q)words[2,CURRENT-1]}" 2>/dev/null | tr '\t' ':')}")
  if [[ -n $found[1] ]]; then
    _describe word found
  else
    _files
  fi
}
compdef _procwire procwire
`;

const FISH = `# fish completion of procwire: procwire completion fish | source
function __procwire_options
  set -l words (commandline -opc)
  $words[1] help --options $words[2..3] 2>/dev/null
end
function __procwire_candidates
  set -l words (commandline -opc)
  $words[1] help --candidates $words[2..-1] 2>/dev/null
end
complete -c procwire -n __fish_use_subcommand -f
complete -c procwire -n '__fish_seen_subcommand_from attach console help jobs kill logs ps share wait' -f
complete -c procwire -n 'string match -q -- "-*" (commandline -ct)' -f -a '(__procwire_options)'
complete -c procwire -n 'not string match -q -- "-*" (commandline -ct)' -k -a '(__procwire_candidates)'
`;

const SCRIPTS: Readonly<Record<string, string>> = { bash: BASH, zsh: ZSH, fish: FISH };

const HELP: HelpPage = {
  usage: ["bash|zsh|fish"],
  details: `The script completes commands, subcommands, options, names and handles of processes, fan-out jobs and file names. It asks
    the server of --connect or PROCWIRE_CONNECT, or the server of \`procwire start\`.`,
  options: {},
  examples: [
    ["source <(procwire completion bash)", "in ~/.bashrc"],
    ["source <(procwire completion zsh)", "in ~/.zshrc, after compinit"],
    ["procwire completion fish | source", "in ~/.config/fish/config.fish"],
  ],
};

export const command: Command = defineCommand("completion", HELP, {
  options: {},
  complete: async ({ positionals }) =>
    positionals.length > 0 ? [] : Object.keys(SCRIPTS).map((word) => ({ word, description: `script for ${word}` })),

  async run(_, [shell, ...others]) {
    const script = shell !== undefined && Object.hasOwn(SCRIPTS, shell) ? SCRIPTS[shell] : undefined;
    if (script === undefined || others.length > 0)
      throw new UsageError(`give one shell: ${Object.keys(SCRIPTS).join(", ")}`);
    process.stdout.write(script);
    return 0;
  },
});
