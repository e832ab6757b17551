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

/** How the text of a command-line flag becomes the value of a setting. `on` and `off` are flags without a text. */
export type SettingFlagKind = "count" | "seconds" | "text" | "on" | "off";

interface SettingSource<Flag extends string | null> {
  /** Flag of `fanout`, `jobs resume` and `jobs retry`; null: the program sets the value. */
  readonly flag: Flag;
  readonly kind?: SettingFlagKind;
  /** Whether a value applies to one run only. Otherwise a resumed job keeps it until a command gives another. */
  readonly isPerRun?: boolean;
}

type Setting<T, Flag extends string | null> = Schema<T> & SettingSource<Flag>;

function setting<T, const Flag extends string | null>(
  schema: Schema<T>,
  source: SettingSource<Flag>,
): Setting<T, Flag> {
  return { ...schema, ...source };
}

const price = object("Price", { input: f64, cachedInput: f64, output: f64 });

/**
 * Every setting of a job. The type, the decoding of stored settings, the command-line flags and the settings of a
 * resumed job derive from this table.
 */
const SETTINGS = {
  maxAttempts: setting(f64, { flag: "max-attempts", kind: "count" }),
  /** Maximum duration of one attempt. */
  rowTimeoutMs: setting(f64, { flag: "row-timeout", kind: "seconds" }),
  /** Maximum number of rows, from the start of the table; null: all rows. */
  rowLimit: setting(nullable(f64), { flag: null, isPerRun: true }),
  /** Whether to reuse the answers of other jobs. Default: true. */
  reuse: setting(optional(boolean), { flag: "no-reuse", kind: "off" }),
  /** Whether to submit rows to the provider as batches. Single calls answer the remaining rows. Default: false. */
  batch: setting(optional(boolean), { flag: "batch", kind: "on" }),
  /** Ids of the only items to execute; absent: all items. */
  onlyItems: setting(optional(array(string)), { flag: null, isPerRun: true }),
  /** Model that replaces the model of the task. */
  model: setting(optional(string), { flag: null }),
  /** Model for the last attempt at a row that the model refused or did not answer in `maxAttempts` attempts. */
  fallbackModel: setting(optional(string), { flag: "fallback-model", kind: "text" }),
  serviceTier: setting(optional(string), { flag: "service-tier", kind: "text" }),
  /** Budget that the ledger enforces if several processes work on the job. */
  budget: setting(
    optional(object("SharedBudget", { tokens: optional(f64), usd: optional(f64), price: optional(price) })),
    { flag: null, isPerRun: true },
  ),
};

const SETTINGS_SCHEMA = object("JobSettings", SETTINGS);

/** How a job is run. The settings of the latest command apply. */
export interface JobSettings extends Infer<typeof SETTINGS_SCHEMA> {}

/** A command-line flag that sets a job setting. */
export type SettingFlag = NonNullable<(typeof SETTINGS)[keyof typeof SETTINGS]["flag"]>;

export const DEFAULT_ROW_TIMEOUT_SECONDS = 1800;
export const DEFAULT_MAX_ATTEMPTS = 3;

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
  for (const [name, { isPerRun }] of entries()) {
    if (isPerRun) Reflect.deleteProperty(inherited, name);
  }
  return newJobSettings({ ...inherited, ...given });
}

/** Decodes stored settings. Throws a `DecodeError` if a value has the wrong type. */
export function decodeJobSettings(value: unknown): JobSettings {
  return SETTINGS_SCHEMA.decode(value);
}

/** Returns the settings that flags give. `read` returns the value of a flag, or undefined if the flag is absent. */
export function settingsFromFlags(
  read: (flag: SettingFlag, kind: SettingFlagKind) => unknown,
): Partial<JobSettings> {
  const given: Partial<JobSettings> = {};
  for (const [name, { flag, kind, decode }] of entries()) {
    const value = flag === null || kind === undefined ? undefined : read(flag, kind);
    if (value !== undefined) Object.assign(given, { [name]: decode(value) });
  }
  return given;
}

function entries(): [string, Setting<unknown, SettingFlag | null>][] {
  return Object.entries<Setting<unknown, SettingFlag | null>>(SETTINGS);
}
