import { posix } from "node:path";
import { assigningCommands } from "./shell-parser.ts";
import type { Wrapper } from "./wrapper-programs.ts";
import { RUNNERS, SHELLS, WRAPPERS } from "./wrapper-programs.ts";

/** A command that runs when another one does. */
export interface ReachedCommand {
  words: readonly string[];
  /** More words come from elsewhere, as with xargs. */
  open: boolean;
  /** It is only known that these words stand behind a program that may run them. */
  guessed: boolean;
}

export interface Reach {
  /** The command itself first. */
  commands: ReachedCommand[];
  /** `maybe`: a program among them can run what its files or arguments say. `certainly`: one runs what cannot be read. */
  hidden: "nothing" | "maybe" | "certainly";
}

/** Deeper than anyone writes by hand. */
const MAX_DEPTH = 12;

/**
 * Everything a command is known to run: itself, and what `env`, `sudo`, `xargs`, `bash -c` and similar programs are given to
 * run. For rules that forbid: it finds what is named, and says when something may be hidden. It is no wall: a program it
 * has never heard of can run anything.
 */
export function reachOf(words: readonly string[]): Reach {
  const reach: Reach = { commands: [], hidden: "nothing" };
  follow(reach, words, false, 0);
  return reach;
}

/** Does it begin with a program that runs others and leave open what it runs, so that it may be anything? */
export function runsOthers([first = "", second]: readonly string[]): boolean {
  const name = posix.basename(first);
  if (WRAPPERS.has(name) || SHELLS.has(name) || name === "eval" || name === "find") return true;
  return RUNNERS.test(name) && (second === undefined || second.startsWith("-"));
}

function follow(reach: Reach, words: readonly string[], open: boolean, depth: number): void {
  const [first] = words;
  if (first === undefined) {
    if (open) hide(reach, "certainly");
    return;
  }
  reach.commands.push({ words, open, guessed: false });
  const name = posix.basename(first);
  const wrapper = WRAPPERS.get(name);
  if (depth > MAX_DEPTH) hide(reach, "certainly");
  else if (wrapper) followWrapper(reach, wrapper, words, open, depth);
  else if (SHELLS.has(name)) followShell(reach, words, open, depth);
  else if (name === "eval") followLine(reach, words.slice(1).join(" "), open, depth);
  else if (name === "find") followFind(reach, words, depth);
  else if (RUNNERS.test(name)) {
    hide(reach, "maybe");
    for (let at = 1; at < words.length; at++)
      reach.commands.push({ words: words.slice(at), open, guessed: true });
  }
}

function hide(reach: Reach, how: "maybe" | "certainly"): void {
  if (reach.hidden !== "certainly") reach.hidden = how;
}

function followWrapper(
  reach: Reach,
  wrapper: Wrapper,
  words: readonly string[],
  open: boolean,
  depth: number,
): void {
  const options = afterOptions(wrapper, words);
  if (options === null) {
    hide(reach, "certainly");
    return;
  }
  let at = options + (wrapper.operands ?? 0);
  while (wrapper.assigns && /^[^=/]+=/.test(words[at] ?? "")) at++;
  const inner = words.slice(at);
  if (inner.length > 0 || open) follow(reach, inner, open || wrapper.appends === true, depth + 1);
}

/** Where the options end; null when one is not known, and with it what follows. */
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
      if (!word.includes("=") || !(takes.includes(name) || flags.includes(name))) return null;
      continue;
    }
    const next = afterCluster(flags, takes, word);
    if (next === null) return null;
    at += next;
  }
  return words.length;
}

/** Short options in one word: 0 when it has all, 1 when the last takes the next word, null when one is not known. */
function afterCluster(flags: readonly string[], takes: readonly string[], word: string): 0 | 1 | null {
  for (let at = 1; at < word.length; at++) {
    const option = `-${word.charAt(at)}`;
    if (takes.includes(option)) return at === word.length - 1 ? 1 : 0;
    if (!flags.includes(option)) return null;
  }
  return 0;
}

const SHELL_OPTIONS_WITH_VALUE = new Set(["--rcfile", "--init-file"]);

function followShell(reach: Reach, words: readonly string[], open: boolean, depth: number): void {
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
  if (operand === undefined || readsInput) hide(reach, "certainly");
  else if (isLine) followLine(reach, operand, open && at === words.length - 1, depth);
  else hide(reach, "maybe");
}

function followLine(reach: Reach, line: string, open: boolean, depth: number): void {
  const commands = assigningCommands(line);
  if (!commands) hide(reach, "certainly");
  for (const { words } of commands ?? []) follow(reach, words, open, depth + 1);
}

function followFind(reach: Reach, words: readonly string[], depth: number): void {
  for (let at = 1; at < words.length; at++) {
    if (!/^-(exec|ok)(dir)?$/.test(words[at] ?? "")) continue;
    const end = words.findIndex((word, index) => index > at && (word === ";" || word === "+"));
    if (end < 0) {
      hide(reach, "certainly");
      return;
    }
    const inner = words.slice(at + 1, end);
    // What is found stands where the braces are: as an argument that is a file, else as anything.
    if (inner[0]?.includes("{}")) hide(reach, "certainly");
    follow(reach, inner, true, depth + 1);
    at = end;
  }
}
