/** A program that runs the command in its arguments. After an option that is not listed, the command is unknown. */
export interface Wrapper {
  flags: readonly string[];
  /** Options with a value, in the next word or attached to the option. */
  takes: readonly string[];
  /** Whether a number such as `-10` is an option. */
  numeric?: boolean;
  /** Number of words between options and command. */
  operands?: number;
  /** Whether `NAME=value` words may precede the command. */
  assigns?: boolean;
  /** Whether the program appends arguments from another source. */
  appends?: boolean;
  /** Whether the program starts a shell if it has no command. */
  startsShell?: boolean;
}

const splitWords = (text: string): string[] => text.split(" ");
const WITHOUT_OPTIONS: Wrapper = { flags: [], takes: [] };

export const WRAPPERS: ReadonlyMap<string, Wrapper> = new Map<string, Wrapper>([
  ["builtin", WITHOUT_OPTIONS],
  ["nohup", WITHOUT_OPTIONS],
  ["chronic", WITHOUT_OPTIONS],
  ["unbuffer", WITHOUT_OPTIONS],
  // A precommand modifier of zsh.
  ["-", WITHOUT_OPTIONS],
  ["busybox", WITHOUT_OPTIONS],
  ["toybox", WITHOUT_OPTIONS],
  ["command", { flags: splitWords("-p -v -V"), takes: [] }],
  ["exec", { flags: splitWords("-c -l"), takes: ["-a"] }],
  [
    "env",
    {
      flags: splitWords("- -i --ignore-environment -0 --null -v --debug --list-signal-handling"),
      takes: splitWords("-u --unset -C --chdir -a --argv0"),
      assigns: true,
    },
  ],
  ["nice", { flags: [], takes: splitWords("-n --adjustment"), numeric: true }],
  ["ionice", { flags: splitWords("-t --ignore"), takes: splitWords("-c --class -n --classdata") }],
  ["setsid", { flags: splitWords("-c --ctty -f --fork -w --wait"), takes: [] }],
  [
    "timeout",
    {
      flags: splitWords("-f --foreground -p --preserve-status -v --verbose"),
      takes: splitWords("-s --signal -k --kill-after"),
      operands: 1,
    },
  ],
  ["stdbuf", { flags: [], takes: splitWords("-i --input -o --output -e --error") }],
  ["time", { flags: splitWords("-p -v -a --portability --verbose --append -q --quiet"), takes: splitWords("-f -o") }],
  ["chroot", { flags: ["--skip-chdir"], takes: splitWords("--groups --userspec"), operands: 1, startsShell: true }],
  ["taskset", { flags: splitWords("-a --all-tasks -c --cpu-list"), takes: [], operands: 1 }],
  ["chrt", { flags: splitWords("-a -b -d -f -i -o -r -v -R"), takes: splitWords("-T -P -D"), operands: 1 }],
  [
    "sudo",
    {
      flags: splitWords(
        "-A -b -B -E -H -k -n -N -P -S --askpass --background --non-interactive --preserve-env --set-home",
      ),
      takes: splitWords("-C -D -g -h -p -R -r -T -t -U -u --user --group --host --prompt --chdir --preserve-env"),
      assigns: true,
    },
  ],
  ["doas", { flags: ["-n"], takes: splitWords("-C -u") }],
  [
    "xargs",
    {
      flags: splitWords("-0 --null -r --no-run-if-empty -t --verbose -p --interactive -x --exit -o --open-tty"),
      takes: splitWords(
        "-a --arg-file -d --delimiter -E -L -n --max-args -P --max-procs -s --max-chars --process-slot-var",
      ),
      appends: true,
    },
  ],
]);

/** Shells whose command lines can be parsed. */
export const SHELLS: ReadonlySet<string> = new Set(splitWords("sh bash rbash dash ash ksh ksh93 mksh zsh"));

/** Programs that run others in ways that are not analyzed: interpreters, builtins, tracers, multiplexers, remote shells. */
export const RUNNERS =
  /^(\.|source|trap|coproc|alias|hash|emulate|mapfile|readarray|compgen|(python|perl|ruby|nodejs|node|deno|bun|php|lua|tclsh|expect|guile|Rscript|osascript|[gmn]?awk)[\d.]*|fish|t?csh|pwsh|nu|xonsh|elvish|su|sg|runuser|runcon|choom|uclampset|setpriv|pkexec|run0|systemd-run|unshare|nsenter|capsh|bwrap|firejail|flock|script|watch|entr|parallel|strace|ltrace|gdb|perf|valgrind|ssh|docker|podman|kubectl|tmux|screen|at|batch|crontab|dbus-run-session|fakeroot|proot|faketime|rlwrap|setarch|linux(32|64)|i386|x86_64|uname26|prlimit|cgexec|numactl|catchsegv|start-stop-daemon|daemonize|xvfb-run|ld-linux.*|ld\.so)$/;
