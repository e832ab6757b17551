import { posix } from "node:path";
import { parseCommandsWithAssignments } from "./shell-parser.ts";
import { RUNNERS, SHELLS, WRAPPERS, type Wrapper } from "./wrapper-programs.ts";

/** A command that another command runs. */
export interface NestedCommand {
  argv: readonly string[];
  /** Whether further arguments come from another source, as with xargs. */
  open: boolean;
  /** Whether it is uncertain that the preceding program runs these words. */
  guessed: boolean;
}

export interface CommandAnalysis {
  /** Starts with the command itself. */
  commands: NestedCommand[];
  /** `maybe`: a program can run code from its files or arguments. `certainly`: a program runs code that cannot be parsed. */
  hidden: "nothing" | "maybe" | "certainly";
}

/** Maximum nesting. Deeper than hand-written commands. */
const MAX_DEPTH = 12;

/**
 * Returns the command and its nested commands, which `env`, `sudo`, `xargs`, `bash -c` and similar programs run. Serves
 * rules that forbid commands: it finds named commands and reports whether others may be hidden. It does not replace a
 * sandbox, because unknown programs can run anything.
 */
export function analyzeCommand(words: readonly string[]): CommandAnalysis {
  const analysis: CommandAnalysis = { commands: [], hidden: "nothing" };
  follow(analysis, words, false, 0);
  return analysis;
}

/** Reports whether the command starts a runner (`env`, `sh`, `find`) whose target cannot be determined. */
export function isOpenEndedRunner([first = "", second]: readonly string[]): boolean {
  const name = posix.basename(first);
  if (WRAPPERS.has(name) || SHELLS.has(name) || name === "eval" || name === "find") return true;
  return RUNNERS.test(name) && (second === undefined || second.startsWith("-"));
}

function follow(analysis: CommandAnalysis, argv: readonly string[], open: boolean, depth: number): void {
  const [first] = argv;
  if (first === undefined) {
    if (open) markHidden(analysis, "certainly");
    return;
  }
  analysis.commands.push({ argv, open, guessed: false });
  const name = posix.basename(first);
  const wrapper = WRAPPERS.get(name);
  if (depth > MAX_DEPTH) markHidden(analysis, "certainly");
  else if (wrapper) followWrapper(analysis, wrapper, argv, open, depth);
  else if (SHELLS.has(name)) followShell(analysis, argv, open, depth);
  else if (name === "eval") followLine(analysis, argv.slice(argv[1] === "--" ? 2 : 1).join(" "), open, depth);
  else if (name === "find") followFind(analysis, argv, depth);
  else if (RUNNERS.test(name)) {
    markHidden(analysis, "maybe");
    const [, ...rest] = argv;
    for (const at of rest.keys()) analysis.commands.push({ argv: rest.slice(at), open, guessed: true });
  }
}

function markHidden(analysis: CommandAnalysis, certainty: "maybe" | "certainly"): void {
  if (analysis.hidden !== "certainly") analysis.hidden = certainty;
}

function followWrapper(
  analysis: CommandAnalysis,
  wrapper: Wrapper,
  words: readonly string[],
  open: boolean,
  depth: number,
): void {
  const options = afterOptions(wrapper, words);
  if (options === null) {
    markHidden(analysis, "certainly");
    return;
  }
  let at = options + (wrapper.operands ?? 0);
  for (let word = words[at]; wrapper.assigns && word?.includes("="); word = words[++at])
    // An assignment for `env`, but a command for `sudo`.
    if (word.startsWith("/")) analysis.commands.push({ argv: words.slice(at), open, guessed: true });
  const inner = words.slice(at);
  if (inner.length === 0 && wrapper.startsShell) markHidden(analysis, "certainly");
  if (inner.length > 0 || open) follow(analysis, inner, open || wrapper.appends === true, depth + 1);
}

/** Returns the position after the options, or null after an unknown option, whose arguments are unknown too. */
function afterOptions({ flags, takes, numeric }: Wrapper, words: readonly string[]): number | null {
  for (let at = 1; at < words.length; at++) {
    const word = words[at] ?? "";
    if (word === "--") return at + 1;
    if (!word.startsWith("-")) return at;
    if (flags.includes(word) || (numeric && /^-\d+$/.test(word))) continue;
    if (takes.includes(word)) {
      at++;
      continue;
    }
    if (word.startsWith("--")) {
      const [name = ""] = word.split("=");
      if (!takes.includes(name) && !flags.includes(name)) return null;
      continue;
    }
    const next = afterCluster(flags, takes, word);
    if (next === null) return null;
    at += next;
  }
  return words.length;
}

/** Parses combined short options. Returns 1 if the last option takes the next word, 0 if not, null if one is unknown. */
function afterCluster(flags: readonly string[], takes: readonly string[], word: string): 0 | 1 | null {
  for (let at = 1; at < word.length; at++) {
    const option = `-${word.charAt(at)}`;
    if (takes.includes(option)) return at === word.length - 1 ? 1 : 0;
    if (!flags.includes(option)) return null;
  }
  return 0;
}

const SHELL_OPTIONS_WITH_VALUE = new Set(["--rcfile", "--init-file"]);

function followShell(analysis: CommandAnalysis, words: readonly string[], open: boolean, depth: number): void {
  let isLine = false;
  let readsInput = false;
  let at = 1;
  for (; at < words.length; at++) {
    const word = words[at] ?? "";
    if (word === "--" || word === "-") {
      at++;
      break;
    }
    if (!/^[-+]./.test(word)) break;
    if (/^-[^-]*s/.test(word)) readsInput = true;
    if (/^-[^-]*c/.test(word)) isLine = true;
    if (/^[-+][^-]*[oO]/.test(word) || SHELL_OPTIONS_WITH_VALUE.has(word)) at++;
  }
  const operand = words[at];
  if (operand === undefined || readsInput) markHidden(analysis, "certainly");
  else if (isLine) followLine(analysis, operand, open && at === words.length - 1, depth);
  else markHidden(analysis, "maybe");
}

function followLine(analysis: CommandAnalysis, line: string, open: boolean, depth: number): void {
  const commands = parseCommandsWithAssignments(line);
  if (!commands) markHidden(analysis, "certainly");
  for (const { argv } of commands ?? []) follow(analysis, argv, open, depth + 1);
}

function followFind(analysis: CommandAnalysis, words: readonly string[], depth: number): void {
  const start = words.findIndex((word) => /^-(exec|ok)(dir)?$/.test(word));
  if (start < 0) return;
  const rest = words.slice(start + 1);
  const end = rest.findIndex((word) => word === ";" || word === "+");
  if (end < 0) {
    markHidden(analysis, "certainly");
    return;
  }
  const inner = rest.slice(0, end);
  // `find` replaces the braces by a path. As the command name, that path could be any program.
  if (inner[0]?.includes("{}")) markHidden(analysis, "certainly");
  follow(analysis, inner, true, depth + 1);
  followFind(analysis, rest.slice(end), depth);
}
