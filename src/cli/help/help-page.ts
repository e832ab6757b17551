import { COMMAND_GROUPS, type CommandWords, subcommandSummaries, summaryOf } from "./summaries.ts";

/** Maximum width of a help page: the width of a default terminal, in columns. */
const WIDTH = 80;
/** Maximum width of a term that shares a line with its text. The text of a longer term starts on the next line. */
const MAX_TERM_WIDTH = 27;

/** A term and its text: `["-t, --tty", "allocate a terminal"]`. */
export type HelpRow = readonly [term: string, text: string];
/** A command line that works, and the comment above it. Lines that end with a backslash continue. */
export type HelpExample = readonly [commandLine: string, comment: string];

/** Content of `procwire COMMAND --help`. `renderHelp` adds the summary of the command and lays the texts out. */
export interface HelpPage {
  /** Arguments after the command, one string per form. */
  readonly usage: readonly string[];
  /** Paragraphs below the summary, separated by blank lines. */
  readonly details?: string;
  /** Rows by the title of their group. */
  readonly options: Readonly<Record<string, readonly HelpRow[]>>;
  /** Whether the command has connection options; `notes` are the differences from those of other commands. */
  readonly connection?: boolean;
  /** Paragraphs below the options. */
  readonly notes?: string | undefined;
  /** At least three. */
  readonly examples: readonly HelpExample[];
  readonly exitCodes?: string;
}

/** Lays out the help page of a command in 80 columns. */
export function renderHelp(words: CommandWords, page: HelpPage): string {
  const [first = "", ...others] = page.usage.map((form) => `procwire ${words} ${form}`.trimEnd());
  const subcommands = Object.entries(subcommandSummaries(words));
  const sections = [
    [`Usage: ${first}`, ...others.map((form) => `       ${form}`)].join("\n"),
    wrapText(sentence(summaryOf(words))),
    page.details && wrapText(page.details),
    subcommands.length > 0 && renderGroups({ Subcommands: subcommands }),
    subcommands.length > 0 && `See \`procwire ${words} SUBCOMMAND --help\` for each of them.`,
    renderGroups(page.options),
    page.connection && "Connection options: see `procwire help connect`.",
    page.notes && wrapText(page.notes),
    renderExamples(page.examples),
    page.exitCodes && wrapText(`Exit codes: ${page.exitCodes}`),
  ];
  return `${sections.filter(Boolean).join("\n\n")}\n`;
}

/** Lays out `procwire --help`. */
export function renderCommandList(): string {
  const groups = Object.fromEntries(
    Object.entries(COMMAND_GROUPS).map(([title, commands]) => [title, Object.entries(commands)]),
  );
  const foot = wrapText(
    "Run `procwire help COMMAND` for details, and `procwire help connect` for the options of all commands that use a server.",
  );
  return `procwire: processes over a wire\n\nUsage: procwire COMMAND [OPTIONS]\n\n${renderGroups(groups)}\n\n${foot}\n`;
}

/** Lays out titled lists. All texts of a page start in the same column. */
export function renderGroups(groups: Readonly<Record<string, readonly HelpRow[]>>): string {
  const rows = Object.values(groups).flat();
  const hasShort = rows.some(([term]) => /^-[^-]/.test(term));
  const shown = (term: string) => (hasShort && term.startsWith("--") ? `    ${term}` : term);
  const widths = rows.map(([term]) => shown(term).length).filter((width) => width <= MAX_TERM_WIDTH);
  const indent = " ".repeat(Math.max(0, ...widths) + 4);
  const renderRow = ([term, text]: HelpRow) => {
    const lines = wrap(text, WIDTH - indent.length).join(`\n${indent}`);
    const head = `  ${shown(term)}`;
    return head.length + 2 > indent.length ? `${head}\n${indent}${lines}` : `${head.padEnd(indent.length)}${lines}`;
  };
  return Object.entries(groups)
    .map(([title, group]) => `${title}:\n${group.map(renderRow).join("\n")}`)
    .join("\n\n");
}

export function renderExamples(examples: readonly HelpExample[]): string {
  const lines = examples.map(([commandLine, comment]) => `  # ${comment}\n  ${commandLine.replaceAll("\n", "\n    ")}`);
  return `Examples:\n${lines.join("\n")}`;
}

/** Wraps paragraphs, which blank lines separate. */
export function wrapText(text: string): string {
  return text
    .split(/\n\s*\n/)
    .map((paragraph) => wrap(paragraph, WIDTH).join("\n"))
    .join("\n\n");
}

function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  // A default stays with its word.
  for (const word of text.trim().split(/(?<!\((?:default|minimum):)\s+/)) {
    if (line !== "" && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else line = line === "" ? word : `${line} ${word}`;
  }
  return [...lines, line];
}

const sentence = (summary: string) => `${summary.charAt(0).toUpperCase()}${summary.slice(1)}.`;
