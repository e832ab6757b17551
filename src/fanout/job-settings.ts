import {
  array,
  boolean,
  f64,
  type Infer,
  nullable,
  object,
  optional,
  type Schema,
  string,
} from "../protocol/schema.ts";

/** Value of a setting by the kind of its command-line flag. `on` and `off` are flags without a value. */
interface FlagValues {
  count: number;
  seconds: number;
  text: string;
  on: boolean;
  off: boolean;
}

export type SettingFlagKind = keyof FlagValues;

interface SettingSource<Flag extends string | null, Kind extends SettingFlagKind | null> {
  /** Flag of `fanout`, `jobs resume` and `jobs retry`; null: the program sets the value. */
  readonly flag: Flag;
  readonly kind: Kind;
  /** Whether a value applies to one run only. Otherwise a resumed job keeps it until a command gives another. */
  readonly isPerRun: boolean;
}

function fromFlag<
  T extends FlagValues[Kind] | undefined,
  const Flag extends string,
  const Kind extends SettingFlagKind,
>(schema: Schema<T>, flag: Flag, kind: Kind): Schema<T> & SettingSource<Flag, Kind> {
  return { ...schema, flag, kind, isPerRun: false };
}

function fromProgram<T>(schema: Schema<T>, isPerRun: boolean): Schema<T> & SettingSource<null, null> {
  return { ...schema, flag: null, kind: null, isPerRun };
}

const price = object("Price", () => ({ input: f64, cachedInput: f64, output: f64 }));

/**
 * Every setting of a job. The type, the decoding of stored settings, the command-line flags and the settings of a
 * resumed job derive from this table.
 */
const SETTINGS = {
  maxAttempts: fromFlag(f64, "max-attempts", "count"),
  /** Maximum duration of one attempt. */
  rowTimeoutMs: fromFlag(f64, "row-timeout", "seconds"),
  /** Maximum number of rows, from the start of the table; null: all rows. */
  rowLimit: fromProgram(nullable(f64), true),
  /** Whether to reuse the answers of other jobs. Default: true. */
  reuse: fromFlag(optional(boolean), "no-reuse", "off"),
  /** Whether to submit rows to the provider as batches. Single calls answer the remaining rows. Default: false. */
  batch: fromFlag(optional(boolean), "batch", "on"),
  /** Ids of the only items to execute; absent: all items. */
  onlyItems: fromProgram(optional(array(string)), true),
  /** Model that replaces the model of the task. */
  model: fromProgram(optional(string), false),
  /** Model for the last attempt at a row that the model refused or did not answer in `maxAttempts` attempts. */
  fallbackModel: fromFlag(optional(string), "fallback-model", "text"),
  serviceTier: fromFlag(optional(string), "service-tier", "text"),
  /** Budget that the ledger enforces if several processes work on the job. */
  budget: fromProgram(
    optional(object("SharedBudget", () => ({ tokens: optional(f64), usd: optional(f64), price: optional(price) }))),
    true,
  ),
};

const SETTINGS_SCHEMA = object("JobSettings", () => SETTINGS);

/** How a job is run. The settings of the latest command apply. */
export interface JobSettings extends Infer<typeof SETTINGS_SCHEMA> {}

type AnySetting = (typeof SETTINGS)[keyof typeof SETTINGS];

/** A command-line flag that sets a job setting. */
export type SettingFlag = NonNullable<AnySetting["flag"]>;

/** Every setting flag with its type for the argument parser. */
export type SettingFlags = {
  [F in SettingFlag]: {
    type: Extract<AnySetting, { flag: F }>["kind"] extends "on" | "off" ? "boolean" : "string";
  };
};

export const DEFAULT_ROW_TIMEOUT_SECONDS = 1800;
export const DEFAULT_MAX_ATTEMPTS = 3;
/**
 * Maximum outage of the API, the ledger or all hosts: longer than a restart, a failover or an operator error takes.
 * Also gives the user time to free disk space.
 */
export const DEFAULT_OUTAGE_TIMEOUT_MS = 10 * 60_000;

/** Returns the settings of a new job: the given ones, and defaults for the others. */
export function newJobSettings(given: Partial<JobSettings>): JobSettings {
  return {
    maxAttempts: DEFAULT_MAX_ATTEMPTS,
    rowTimeoutMs: DEFAULT_ROW_TIMEOUT_SECONDS * 1000,
    rowLimit: null,
    ...given,
  };
}

/** Returns the settings of a resumed job: the given ones, then the stored ones, except settings of a single run. */
export function resumedJobSettings(stored: JobSettings, given: Partial<JobSettings>): JobSettings {
  const inherited: Partial<JobSettings> = { ...stored };
  for (const [name, { isPerRun }] of Object.entries(SETTINGS)) {
    if (isPerRun) Reflect.deleteProperty(inherited, name);
  }
  return newJobSettings({ ...inherited, ...given });
}

/** Decodes stored settings. Throws a `DecodeError` if a value has the wrong type. */
export function decodeJobSettings(value: unknown): JobSettings {
  return SETTINGS_SCHEMA.decode(value);
}

/** Returns the settings that flags give. `read` returns the value of a flag, or undefined if the flag is absent. */
export function settingsFromFlags(read: (flag: SettingFlag, kind: SettingFlagKind) => unknown): Partial<JobSettings> {
  const given: Partial<JobSettings> = {};
  for (const [name, { flag, kind, decode }] of Object.entries(SETTINGS)) {
    const value = flag === null ? undefined : read(flag, kind);
    if (value !== undefined) Object.assign(given, { [name]: decode(value) });
  }
  return given;
}
