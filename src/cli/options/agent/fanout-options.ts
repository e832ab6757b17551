import { readFileSync } from "node:fs";
import path from "node:path";
import type { ParseArgsOptionsConfig } from "node:util";
import { DEFAULT_MODEL } from "../../../agent/agent-config.ts";
import { API_KINDS } from "../../../agent/api/choose-dialect.ts";
import type { JsonObject } from "../../../agent/api/response-events.ts";
import { errorMessage } from "../../../base/error-message.ts";
import { isObject } from "../../../base/type-guards.ts";
import { PACKAGE_PRICES, type PriceTable } from "../../../fanout/cost/price-table.ts";
import { TABLE_FORMATS, type TableParseOptions } from "../../../fanout/input/table.ts";
import { DEFAULT_CONCURRENCY, InputError, type JobTask } from "../../../fanout/job.ts";
import {
  newJobSettings,
  type SettingFlag,
  type SettingFlagKind,
  type SettingFlags,
  settingsFromFlags,
} from "../../../fanout/job-settings.ts";
import { STDOUT } from "../../../fanout/output/write-table.ts";
import { unwrapSchema } from "../../../fanout/row/result-schema.ts";
import type { FailFast } from "../../../fanout/run/scheduler.ts";
import type { NetworkChoice } from "../../../tools/network/network-rules.ts";
import type { SandboxMode } from "../../../tools/policy/sandbox-mode.ts";
import { type OptionValues, type PartialValues, UsageError } from "../../command.ts";
import { SERVER_OPTIONS, serversFromEnvironment } from "../connect-options.ts";
import { type ChosenCredentials, credentialsFromFlags } from "../credential-options.ts";
import { ENVIRONMENT_OPTIONS, secretFilterFromFlags } from "../environment-options.ts";
import { parseSandbox, serverUrls } from "../host-options.ts";
import { asksAboutNetwork, NETWORK_OPTIONS, networkFromFlags, parseNetworkFlag } from "../network-options.ts";
import { parseCount } from "../parse-number.ts";
import { parseChoice, parseOptions, secretFlag } from "../parse-options.ts";
import { parseHeaders, parseRequestOptions, REQUEST_FLAGS } from "./model-request-options.ts";
import { OUTPUT_OPTIONS, parseOutputPath } from "./output-path.ts";

const SETTING_FLAGS = {
  "row-timeout": { type: "string" },
  "max-attempts": { type: "string" },
  "service-tier": { type: "string" },
  "fallback-model": { type: "string" },
  batch: { type: "boolean" },
  "no-reuse": { type: "boolean" },
} as const satisfies SettingFlags;

export const RUN_FLAGS = {
  ...SETTING_FLAGS,
  concurrency: { type: "string" },
  api: { type: "string" },
  header: { type: "string", multiple: true },
  rpm: { type: "string" },
  tpm: { type: "string" },
  budget: { type: "string" },
  "budget-usd": { type: "string" },
  prices: { type: "string" },
  "fail-fast": { type: "string" },
  tools: { type: "string" },
  ...SERVER_OPTIONS,
  connect: { type: "string", multiple: true },
  cwd: { type: "string" },
  sandbox: { type: "string" },
  ...NETWORK_OPTIONS,
  "network-column": { type: "string" },
  ...ENVIRONMENT_OPTIONS,
  "database-url": { type: "string" },
  "database-url-file": { type: "string" },
  heartbeat: { type: "string" },
  "outage-timeout": { type: "string" },
  "idle-timeout": { type: "string" },
  explode: { type: "boolean" },
  costs: { type: "boolean" },
  "escape-formulas": { type: "boolean" },
  json: { type: "boolean" },
} as const satisfies ParseArgsOptionsConfig;

export const FANOUT_FLAGS = {
  ...RUN_FLAGS,
  ...REQUEST_FLAGS,
  instruction: { type: "string" },
  "instruction-file": { type: "string" },
  ...OUTPUT_OPTIONS,
  model: { type: "string" },
  "reasoning-effort": { type: "string" },
  "id-column": { type: "string" },
  schema: { type: "string" },
  format: { type: "string" },
  delimiter: { type: "string" },
  encoding: { type: "string" },
  "keep-going": { type: "boolean" },
  random: { type: "boolean" },
  seed: { type: "string" },
  sample: { type: "string" },
  "dry-run": { type: "boolean" },
  fresh: { type: "boolean" },
} as const satisfies ParseArgsOptionsConfig;

type RunValues = PartialValues<typeof RUN_FLAGS>;

/** Options of all commands that run rows. */
export type FanoutRunOptions = ReturnType<typeof parseRunOptions>;
export type FanoutCommandOptions = NonNullable<ReturnType<typeof parseFanoutOptions>>;

/** Returns null if --help is set. */
export function parseFanoutOptions(argv: string[]) {
  const { values, positionals } = parseOptions({
    args: argv,
    allowPositionals: true,
    options: { ...FANOUT_FLAGS, help: { type: "boolean", short: "h" } },
  });
  if (values.help) return null;
  const [input, ...rest] = positionals;
  if (input === undefined) throw new UsageError("no INPUT given");
  if (rest.length > 0) throw new UsageError(`give one INPUT; unexpected \`${rest[0]}\``);
  const run = parseRunOptions(values);
  checkBudget(run, values.model ?? DEFAULT_MODEL);
  checkBatch(run, { tools: run.tools, votes: parseCount("votes", values.votes) });
  return {
    ...run,
    input,
    format: parseChoice("format", values.format, TABLE_FORMATS),
    parseOptions: parseTableOptions(values),
    task: {
      instruction: readInstruction(values.instruction, values["instruction-file"]),
      schema: values.schema === undefined ? null : readSchema(values.schema),
      model: values.model ?? DEFAULT_MODEL,
      reasoningEffort: values["reasoning-effort"] ?? null,
      tools: run.tools,
      idColumn: values["id-column"] ?? null,
      request: parseRequestOptions(values),
      imageColumns: values["image-column"],
      votes: parseCount("votes", values.votes),
    },
    settings: newJobSettings({
      ...run.settings,
      rowLimit: values.random ? null : (parseCount("sample", values.sample) ?? null),
    }),
    output: parseOutput(values, run.json),
    dryRun: values["dry-run"] ?? false,
    fresh: values.fresh ?? false,
  };
}

/** Returns the path of a table, or `-` for standard output, which JSON events must not share. */
export function parseOutput(values: PartialValues<typeof OUTPUT_OPTIONS>, json: boolean): string | undefined {
  if (values.output === STDOUT && json)
    throw new UsageError("--output - conflicts with --json, which also writes to stdout");
  return parseOutputPath(values);
}

function parseTableOptions(values: OptionValues<typeof FANOUT_FLAGS>): TableParseOptions {
  const { delimiter, encoding } = values;
  if (values.random && values.sample === undefined) {
    throw new UsageError("--random requires --sample N");
  }
  if (values.seed !== undefined && !values.random) throw new UsageError("--seed requires --random");
  const character = delimiter === "\\t" || delimiter === "tab" ? "\t" : delimiter;
  if (character !== undefined && (character.length !== 1 || /["\r\n]/.test(character))) {
    throw new UsageError(
      `invalid --delimiter \`${delimiter}\`; expected one character such as ; or tab, and no quote or line end`,
    );
  }
  if (encoding !== undefined && !isEncoding(encoding)) {
    throw new UsageError(
      `unknown --encoding \`${encoding}\`; expected a name such as utf-8, utf-16le, windows-1252 or shift_jis`,
    );
  }
  return {
    delimiter: character,
    encoding,
    keepGoing: values["keep-going"],
    randomSample: values.random ? parseCount("sample", values.sample) : undefined,
    seed: values.seed,
  };
}

function isEncoding(label: string): boolean {
  try {
    return new TextDecoder(label).encoding !== "";
  } catch {
    return false;
  }
}

/** Returns the database URL of a command that requires a database. Only these commands read the generic DATABASE_URL. */
export function requiredDatabaseUrl({ databaseUrl }: FanoutRunOptions): string {
  const url = databaseUrl ?? (process.env.DATABASE_URL || undefined);
  if (url === undefined) {
    throw new UsageError(
      "no database; give --database-url or --database-url-file, or set PROCWIRE_DATABASE_URL or DATABASE_URL",
    );
  }
  return url;
}

export function parseRunOptions(values: RunValues) {
  const tools = parseChoice("tools", values.tools, ["none", "exec"]);
  // A server named only in the environment does not give agents the exec tools.
  const connect = serverUrls(values.connect ?? (tools === "exec" ? serversFromEnvironment() : []));
  if (tools === "none" && connect.length > 0) throw new UsageError("--connect conflicts with --tools none");
  const { cwd } = values;
  const sandbox = parseSandbox(values.sandbox);
  const credentials = credentialsFromFlags(values.credential, undefined, { isLocal: connect.length === 0 });
  const network = parseRowNetwork(values, sandbox, credentials);
  return {
    concurrency: parseCount("concurrency", values.concurrency) ?? DEFAULT_CONCURRENCY,
    // A resumed job keeps the settings that no flag sets.
    settings: settingsFromFlags((flag, kind) => parseSetting(flag, kind, values[flag])),
    // Undefined: derived from the base URL.
    api: parseChoice("api", values.api, API_KINDS),
    headers: parseHeaders(values.header ?? []),
    requestsPerMinute: parseCount("rpm", values.rpm),
    tokensPerMinute: parseCount("tpm", values.tpm),
    budgetTokens: parseCount("budget", values.budget),
    budgetUsd: dollars("budget-usd", values["budget-usd"]),
    prices: readPrices(values.prices),
    failFast: parseFailFast(values["fail-fast"]),
    tools: tools ?? (connect.length > 0 ? "exec" : "none"),
    hosts: {
      connect,
      cwd: cwd === undefined || connect.length > 0 ? cwd : path.resolve(cwd),
      sandbox,
      network,
      credentials: credentials.definitions,
      values: { ...values, connect: undefined },
      secretFilter: secretFilterFromFlags("fanout", values),
      secretFlags: secretFlag(values["database-url-file"], "--database-url-file"),
    },
    networkColumn: values["network-column"],
    databaseUrl: databaseUrl(values["database-url"], values["database-url-file"]),
    heartbeatSeconds: parseCount("heartbeat", values.heartbeat, MIN_HEARTBEAT_SECONDS),
    outageTimeoutSeconds: parseCount("outage-timeout", values["outage-timeout"]),
    idleTimeoutSeconds: parseCount("idle-timeout", values["idle-timeout"]),
    export: {
      explode: values.explode ?? false,
      escapeFormulas: values["escape-formulas"] ?? false,
      costs: values.costs ?? false,
    },
    json: values.json ?? false,
  };
}

/** Returns the network of row agents. Rows run unattended, so no user can answer a question. */
function parseRowNetwork(values: RunValues, sandbox: SandboxMode, credentials: ChosenCredentials): NetworkChoice {
  const words = parseNetworkFlag(values.network, sandbox);
  if (asksAboutNetwork(words))
    throw new UsageError("--network ask: rows run without a user; give allow:DOMAIN or deny:DOMAIN");
  if (values["network-column"] !== undefined && sandbox === "none")
    throw new UsageError("--network-column requires --sandbox read-only or workspace-write");
  return networkFromFlags(words, undefined, sandbox, credentials);
}

/** Rejects a budget in dollars for a model without a known price. */
export function checkBudget({ budgetUsd, prices }: FanoutRunOptions, model: string): void {
  if (budgetUsd === undefined || prices.priceOf(model)) return;
  throw new UsageError(
    `--budget-usd: unknown price of ${model}; give --prices FILE with {"${model}": {"input": 1, "output": 5}}, in dollars per million tokens`,
  );
}

/** Rejects tools and votes with --batch: a batch is one request per row. */
export function checkBatch({ settings }: FanoutRunOptions, task: Pick<JobTask, "tools" | "votes">): void {
  if (!settings.batch) return;
  if (task.tools !== "none")
    throw new UsageError("--batch conflicts with --tools exec: a batch has one request per row");
  if ((task.votes ?? 1) > 1) throw new UsageError("--batch conflicts with --votes: a batch has one request per row");
}

/** Reads the database URL. A flag is visible in the process list; a file or the environment is not. */
function databaseUrl(url: string | undefined, file: string | undefined): string | undefined {
  if (url !== undefined && file !== undefined) {
    throw new UsageError("--database-url conflicts with --database-url-file");
  }
  if (file === undefined) return url ?? (process.env.PROCWIRE_DATABASE_URL || undefined);
  const text = readText("database URL", file).trim();
  if (text === "") throw new InputError(`the database URL in ${file} is empty`);
  return text;
}

/** Returns undefined if the flag is absent. */
function parseSetting(flag: SettingFlag, kind: SettingFlagKind, value: RunValues[SettingFlag]): unknown {
  if (kind === "on" || kind === "off") return value === true ? kind === "on" : undefined;
  if (typeof value !== "string" || kind === "text") return value;
  const number = parseCount(flag, value);
  return number !== undefined && kind === "seconds" ? number * 1000 : number;
}

function parseFailFast(value: string | undefined): FailFast | undefined {
  if (value === undefined) return undefined;
  const percent = /^(\d+(?:\.\d+)?)%$/.exec(value)?.[1];
  if (percent !== undefined && Number(percent) > 0 && Number(percent) <= 100) {
    return { type: "percent", percent: Number(percent) };
  }
  if (/^[1-9]\d*$/.test(value)) return { type: "count", rows: Number(value) };
  throw new UsageError(`invalid --fail-fast \`${value}\`; expected a number of rows such as 5, or a share such as 3%`);
}

function dollars(name: string, value: string | undefined): number | undefined {
  if (value === undefined) return undefined;
  const number = Number(value);
  if (/^\d+(\.\d+)?$/.test(value) && number > 0) return number;
  throw new UsageError(`invalid --${name} \`${value}\`; expected a sum in dollars such as 2.50`);
}

function readPrices(flag: string | undefined): PriceTable {
  const file = flag ?? (process.env.PROCWIRE_PRICES || undefined);
  return file === undefined ? PACKAGE_PRICES : PACKAGE_PRICES.with(readText("price table", file), file);
}

/** Lower bound of pg-boss, which delivers the rows. */
const MIN_HEARTBEAT_SECONDS = 10;

function readInstruction(text: string | undefined, file: string | undefined): string {
  if (text !== undefined && file !== undefined) {
    throw new UsageError("--instruction conflicts with --instruction-file");
  }
  if (file !== undefined) return readText("instruction", file);
  if (text === undefined) throw new UsageError("no --instruction given");
  return text;
}

function readSchema(file: string): JsonObject {
  const text = readText("schema", file);
  let schema: unknown;
  try {
    schema = JSON.parse(text);
  } catch (error) {
    throw new InputError(`the schema ${file} is not JSON: ${errorMessage(error)}`);
  }
  if (!isObject(schema)) throw new InputError(`the schema ${file} is not a JSON object`);
  return unwrapSchema(schema);
}

function readText(what: string, file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new InputError(`the ${what} cannot be read: ${errorMessage(error)}`, { cause: error });
  }
}
