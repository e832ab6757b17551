import { createHttpResponsesApi, type ResponsesApi } from "./responses-api.ts";

/** A setting that cannot be used; the message says which, and what would be right. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

/** Used when no model is named. */
export const DEFAULT_MODEL = "gpt-5";

const DEFAULT_BASE_URL = "https://api.openai.com/v1";

export interface ApiSettings {
  baseUrl?: string | undefined;
  idleTimeoutMs?: number | undefined;
}

/** The API of `OPENAI_BASE_URL` and `OPENAI_API_KEY`, unless the settings say otherwise. */
export function openResponsesApi(env: NodeJS.ProcessEnv, settings: ApiSettings = {}): ResponsesApi {
  const baseUrl = settings.baseUrl ?? (env.OPENAI_BASE_URL || DEFAULT_BASE_URL);
  const protocol = URL.parse(baseUrl)?.protocol;
  if (protocol !== "http:" && protocol !== "https:") {
    throw new ConfigError(`invalid API base URL \`${baseUrl}\`; expected \`http://…\` or \`https://…\``);
  }
  const apiKey = env.OPENAI_API_KEY;
  // Servers at home rarely want a key; the public one always does, and says so only after the first request.
  if (!apiKey && baseUrl === DEFAULT_BASE_URL) {
    throw new ConfigError(
      "OPENAI_API_KEY is not set; set it, or point OPENAI_BASE_URL at a server without keys",
    );
  }
  return createHttpResponsesApi({
    baseUrl,
    apiKey,
    proxyEnv: env,
    idleTimeoutMs: settings.idleTimeoutMs,
  });
}

/** The `-c key=value` overrides of one command line. A key given twice: the last stands. */
export class ConfigOverrides {
  #values = new Map<string, unknown>();
  #unread: Set<string>;

  constructor(values: ReadonlyMap<string, unknown>) {
    this.#values = new Map(values);
    this.#unread = new Set(values.keys());
  }

  string(key: string): string | undefined {
    const value = this.#take(key);
    if (value === undefined || typeof value === "string") return value;
    throw invalid(key, value, "text");
  }

  boolean(key: string): boolean | undefined {
    const value = this.#take(key);
    if (value === undefined || typeof value === "boolean") return value;
    throw invalid(key, value, "true or false");
  }

  /** A whole number of at least 1. */
  count(key: string): number | undefined {
    const value = this.#take(key);
    if (value === undefined) return undefined;
    if (typeof value === "number" && Number.isSafeInteger(value) && value >= 1) return value;
    throw invalid(key, value, "a whole number of at least 1");
  }

  oneOf<T extends string>(key: string, choices: readonly T[]): T | undefined {
    const value = this.#take(key);
    if (value === undefined) return undefined;
    const choice = choices.find((candidate) => candidate === value);
    if (choice !== undefined) return choice;
    throw invalid(key, value, choices.join(" or "));
  }

  /** Keys that no setting has: most likely misspelt. */
  unknownKeys(): string[] {
    return [...this.#unread];
  }

  #take(key: string): unknown {
    this.#unread.delete(key);
    return this.#values.get(key);
  }
}

/** Values are TOML; what is not valid TOML is taken as text, so that `-c model=gpt-5` needs no quotes. */
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

function invalid(key: string, value: unknown, expected: string): ConfigError {
  return new ConfigError(`invalid value \`${String(value)}\` for ${key}; expected ${expected}`);
}
