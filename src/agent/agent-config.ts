import { type ApiKind, DIALECTS, readBaseUrl } from "./api/choose-dialect.ts";
import { createHttpModelApi } from "./api/http-model-api.ts";
import type { ModelApi } from "./api/model-api.ts";

/** An invalid setting. The message names the setting and the expected value. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

export const DEFAULT_MODEL = "gpt-5";

const DEFAULT_BASE_URL = "https://api.openai.com/v1";

const DEFAULT_ANTHROPIC_BASE_URL = "https://api.anthropic.com/v1";

/** Prefix of the environment variables by default base URL. */
const PROVIDERS_WITH_KEYS: Readonly<Record<string, string>> = {
  [DEFAULT_BASE_URL]: "OPENAI",
  [DEFAULT_ANTHROPIC_BASE_URL]: "ANTHROPIC",
};

export interface ApiSettings {
  baseUrl?: string | undefined;
  /** Default: derived from the base URL. */
  kind?: ApiKind | undefined;
  idleTimeoutMs?: number | undefined;
  /** Sent with every request. */
  headers?: Readonly<Record<string, string>> | undefined;
}

/**
 * Opens the API of `OPENAI_BASE_URL` and `OPENAI_API_KEY`, unless `settings` names another. The Anthropic dialect reads
 * `ANTHROPIC_BASE_URL` and `ANTHROPIC_API_KEY`.
 */
export function openModelApi(env: NodeJS.ProcessEnv, settings: ApiSettings = {}): ModelApi {
  const requestedUrl = settings.baseUrl ?? defaultBaseUrl(env, settings.kind);
  const protocol = URL.parse(requestedUrl)?.protocol;
  if (protocol !== "http:" && protocol !== "https:") {
    throw new ConfigError(`invalid API base URL \`${requestedUrl}\`; expected \`http://…\` or \`https://…\``);
  }
  const { baseUrl, kind } = readBaseUrl(requestedUrl, settings.kind);
  const apiKey = apiKeyFor(kind, baseUrl, env);
  // Self-hosted servers rarely need a key. The public API always does, and would report a missing key only after the
  // first request.
  const provider = PROVIDERS_WITH_KEYS[requestedUrl];
  if (!apiKey && provider !== undefined) {
    throw new ConfigError(
      `${provider}_API_KEY is not set; set it, or point ${provider}_BASE_URL at a server without keys`,
    );
  }
  return createHttpModelApi(DIALECTS[kind], {
    baseUrl,
    apiKey,
    proxyEnv: env,
    headers: settings.headers,
    idleTimeoutMs: settings.idleTimeoutMs,
  });
}

/**
 * Returns the API key. A gateway with the Anthropic dialect may use `OPENAI_API_KEY`; Anthropic itself never receives
 * the key of another provider.
 */
function apiKeyFor(kind: ApiKind, baseUrl: string, env: NodeJS.ProcessEnv): string | undefined {
  if (kind !== "anthropic") return env.OPENAI_API_KEY;
  const isAnthropic = new URL(baseUrl).hostname.endsWith("anthropic.com");
  return env.ANTHROPIC_API_KEY || (isAnthropic ? undefined : env.OPENAI_API_KEY);
}

function defaultBaseUrl(env: NodeJS.ProcessEnv, kind: ApiKind | undefined): string {
  if (kind !== "anthropic") return env.OPENAI_BASE_URL || DEFAULT_BASE_URL;
  return env.ANTHROPIC_BASE_URL || env.OPENAI_BASE_URL || DEFAULT_ANTHROPIC_BASE_URL;
}

/** The `-c key=value` overrides of one command line. If a key occurs twice, the last value applies. */
export class ConfigOverrides {
  #values: ReadonlyMap<string, unknown>;
  #unread: Set<string>;

  constructor(values: ReadonlyMap<string, unknown>) {
    this.#values = values;
    this.#unread = new Set(values.keys());
  }

  string(key: string): string | undefined {
    return this.#read(key, (value) => typeof value === "string", "text");
  }

  boolean(key: string): boolean | undefined {
    return this.#read(key, (value) => typeof value === "boolean", "true or false");
  }

  /** Returns a whole number of at least 1, or undefined if the key is absent. */
  count(key: string): number | undefined {
    const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 1;
    return this.#read(key, isCount, "a whole number of at least 1");
  }

  oneOf<T extends string>(key: string, choices: readonly T[]): T | undefined {
    const isChoice = (value: unknown): value is T => choices.some((choice) => choice === value);
    return this.#read(key, isChoice, choices.join(" or "));
  }

  /** Returns the keys that no setting has read; most likely they are misspelled. */
  unknownKeys(): string[] {
    return [...this.#unread];
  }

  #read<T>(key: string, isValid: (value: unknown) => value is T, expected: string): T | undefined {
    this.#unread.delete(key);
    const value = this.#values.get(key);
    if (value === undefined || isValid(value)) return value;
    throw new ConfigError(`invalid value \`${String(value)}\` for ${key}; expected ${expected}`);
  }
}

/** Parses values as TOML. Other text is a string, so `-c model=gpt-5` needs no quotes. */
export async function parseOverrides(settings: readonly string[]): Promise<ConfigOverrides> {
  const values = new Map<string, unknown>();
  if (settings.length === 0) return new ConfigOverrides(values);
  const { parse } = await import("smol-toml");
  for (const setting of settings) {
    const equals = setting.indexOf("=");
    const key = setting.slice(0, equals).trim();
    if (equals === -1 || key === "") {
      throw new ConfigError(`invalid -c override \`${setting}\`; expected \`key=value\``);
    }
    const text = setting.slice(equals + 1).trim();
    values.set(key, parseValue(parse, text));
  }
  return new ConfigOverrides(values);
}

function parseValue(parse: (toml: string) => Record<string, unknown>, text: string): unknown {
  try {
    return parse(`value = ${text}`).value;
  } catch {
    return text;
  }
}
