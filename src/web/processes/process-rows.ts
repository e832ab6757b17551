import type { ProcessListing } from "../../exec/exec-process.ts";
import { formatCommand, formatLimits } from "../app/format.ts";
import { type BadgeText, describeProcess } from "../app/state-badge.ts";

/** Points of the sparkline of the output rate. */
const MAX_RATES = 30;
/** Sort order of states: processes that need attention come first. */
const STATE_ORDER = ["waiting", "paused", "running", "failure", "success", "neutral"];

/** A process in the list, with values that derive from it and from earlier polls. */
export interface ProcessRow {
  /** Handle, or the process id on servers without handles. */
  key: string;
  handle: string | null;
  /** Name that the user chose, or the key. */
  title: string;
  /** Labels as `key=value`. */
  labels: readonly string[];
  command: string;
  fullCommand: string;
  cwd: string;
  state: BadgeText;
  owner: string;
  isRunning: boolean;
  startedAtMs: number;
  /** Null if the server does not report it. */
  cpuPercent: number | null;
  memoryBytes: number | null;
  outputBytes: number;
  /** Bytes per second of the last polls, oldest first. */
  rates: readonly number[];
  /** Resource limits in words; empty without limits. */
  limits: string;
}

export type SortKey = "title" | "command" | "state" | "owner" | "age" | "cpu" | "memory" | "rate";

export interface Sorting {
  key: SortKey;
  isDescending: boolean;
}

interface OutputCount {
  bytes: number;
  atMs: number;
  rates: readonly number[];
}

/** Converts polled listings to rows. Keeps the output counts of the last poll to derive rates. */
export class ProcessRows {
  #counts = new Map<string, OutputCount>();

  /** `ownId` is the principal that owns processes without a listed owner. */
  update(listings: readonly ProcessListing[], ownId: string, atMs: number): ProcessRow[] {
    const counts = new Map<string, OutputCount>();
    const rows = listings.map((listing) => {
      const key = listing.handle ?? listing.processId;
      const count = nextCount(this.#counts.get(key), listing.outputBytes, atMs);
      counts.set(key, count);
      return toRow(listing, key, ownId, count.rates);
    });
    this.#counts = counts;
    return rows;
  }
}

function nextCount(last: OutputCount | undefined, bytes: number, atMs: number): OutputCount {
  const seconds = last ? (atMs - last.atMs) / 1000 : 0;
  if (!last || seconds <= 0) return { bytes, atMs, rates: last?.rates ?? [] };
  const rate = Math.max(0, (bytes - last.bytes) / seconds);
  // A silent process keeps its array, so that its row does not change.
  const isSilent = rate === 0 && last.rates.every((earlier) => earlier === 0);
  const rates = isSilent && last.rates.length > 0 ? last.rates : [...last.rates, rate].slice(-MAX_RATES);
  return { bytes, atMs, rates };
}

function toRow(listing: ProcessListing, key: string, ownId: string, rates: readonly number[]): ProcessRow {
  const { name, labels = {} } = listing;
  return {
    key,
    handle: listing.handle ?? null,
    title: name ?? key,
    labels: Object.entries(labels).map(([label, value]) => `${label}=${value}`),
    command: shortCommand(listing.argv),
    fullCommand: formatCommand(listing.argv),
    cwd: listing.cwd,
    state: describeProcess(listing),
    owner: listing.principal ?? ownId,
    isRunning: listing.running,
    startedAtMs: listing.startedAtMs,
    cpuPercent: listing.usage?.cpuPercent ?? null,
    memoryBytes: listing.usage?.memoryBytes ?? null,
    outputBytes: listing.outputBytes,
    rates: listing.running ? rates : [],
    limits: formatLimits(listing.status?.limits),
  };
}

/** Returns the script of a shell command, and other commands as they are. */
export function shortCommand(argv: readonly string[]): string {
  const [program = "", ...args] = argv;
  const isShell = /(^|\/)(ba|da|z|k)?sh$/.test(program);
  const flag = args.findIndex((arg) => /^-[a-z]*c$/.test(arg));
  const script =
    isShell && flag >= 0 && args.slice(0, flag).every((arg) => arg.startsWith("-")) ? args[flag + 1] : undefined;
  if (script === undefined) return formatCommand(argv);
  return script.trim().replace(/\p{Cc}+/gu, " ");
}

/** Returns the rows that contain every word of the filter. */
export function filterRows(rows: readonly ProcessRow[], filter: string): ProcessRow[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter(({ title, key, labels, fullCommand, state, owner }) => {
    const text = [title, key, ...labels, fullCommand, state.label, owner].join("\n").toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

/** Sorts rows. Equal rows keep the newest first, so that their order does not change between polls. */
export function sortRows(rows: readonly ProcessRow[], { key, isDescending }: Sorting): ProcessRow[] {
  const direction = isDescending ? -1 : 1;
  return [...rows].sort(
    (a, b) =>
      direction * compare(sortValue(a, key), sortValue(b, key)) ||
      b.startedAtMs - a.startedAtMs ||
      compare(a.key, b.key),
  );
}

function sortValue(row: ProcessRow, key: SortKey): string | number {
  switch (key) {
    case "age":
      return -row.startedAtMs;
    case "cpu":
      return row.cpuPercent ?? -1;
    case "memory":
      return row.memoryBytes ?? -1;
    case "rate":
      return row.rates.at(-1) ?? -1;
    case "state":
      return STATE_ORDER.indexOf(row.state.tone);
    default:
      return row[key];
  }
}

function compare(a: string | number, b: string | number): number {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}
