import { parseArgs } from "node:util";
import { withDeadline } from "../../async/deadline.ts";
import { printableLine } from "../../base/text/printable-text.ts";
import type { Command, OptionTable } from "../command.ts";
import { COMMAND_SUMMARIES, subcommandSummaries } from "../help/summaries.ts";
import { takesNextArgument } from "../options/split-command.ts";

/** A word that the shell offers, and its description. */
export interface Candidate {
  word: string;
  description: string;
}

/** Values of the options and the arguments before the word that the user completes. */
export interface CompletedWords {
  values: Readonly<Record<string, unknown>>;
  positionals: readonly string[];
}

/** Default time limit for candidates. A user who presses tab does not wait longer. */
const DEFAULT_TIMEOUT_MS = 500;
/** Environment variable with another time limit in milliseconds, for slow connections. */
const TIMEOUT_VARIABLE = "PROCWIRE_COMPLETION_TIMEOUT_MS";
/** Maximum length of a description. */
const MAX_DESCRIPTION_LENGTH = 60;
/** Words that a shell neither splits nor expands: bash evaluates `$(...)` in candidates, and servers may be hostile. */
const SAFE_WORD = /^[A-Za-z0-9][\w.-]*$/;

/**
 * Returns the candidates for the argument after `words`, one per line with its description after a tab. Empty if there are
 * none, if they take too long, or on any error: a completion prints no errors.
 */
export async function renderCandidates(
  words: readonly string[],
  load: (name: string) => Promise<Command | null>,
): Promise<string> {
  const found = await findCandidates(words, load).catch(() => []);
  return found
    .filter(({ word }) => SAFE_WORD.test(word))
    .map(({ word, description }) => `${word}\t${printableLine(description).slice(0, MAX_DESCRIPTION_LENGTH)}\n`)
    .join("");
}

async function findCandidates(
  [name = "", ...rest]: readonly string[],
  load: (name: string) => Promise<Command | null>,
): Promise<Candidate[]> {
  if (name === "" || name === "help")
    return rest.length === 0 ? fromSummaries(Object.fromEntries(COMMAND_SUMMARIES)) : [];
  const command = await load(name);
  if (!command) return [];
  const { positionals } = parseWords(rest, command.options);
  const [verb] = positionals;
  if (command.subcommands && verb === undefined && !expectsValue(rest, command.options))
    return [...fromSummaries(subcommandSummaries(name)), ...(await complete(command, rest))];
  const subcommand = verb === undefined ? undefined : command.subcommands?.[verb];
  if (!subcommand || !Object.hasOwn(command.subcommands ?? {}, verb ?? "")) return complete(command, rest);
  // Options may precede the subcommand.
  return complete(await subcommand(), rest.toSpliced(rest.indexOf(verb ?? ""), 1));
}

/** Returns the candidates of the command itself: none if they take too long, so that its subcommands are offered. */
async function complete(command: Command, words: readonly string[]): Promise<Candidate[]> {
  const parsed = parseWords(words, command.options);
  const found = expectsValue(words, command.options)
    ? command.completeValue?.(words.at(-1) ?? "", parsed)
    : command.complete?.(parsed);
  const timeoutMs = Number(process.env[TIMEOUT_VARIABLE]) || DEFAULT_TIMEOUT_MS;
  return found === undefined ? [] : withDeadline(found, timeoutMs, "candidates").catch(() => []);
}

/** Reports whether the next word is the value of an option. */
function expectsValue(words: readonly string[], options: OptionTable): boolean {
  const last = words.at(-1) ?? "";
  return last.startsWith("-") && takesNextArgument(last, options);
}

function parseWords(words: readonly string[], options: OptionTable): CompletedWords {
  return parseArgs({ args: [...words], options, allowPositionals: true, strict: false });
}

function fromSummaries(summaries: Readonly<Record<string, string>>): Candidate[] {
  return Object.entries(summaries).map(([word, description]) => ({ word, description }));
}
