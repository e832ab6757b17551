import { errorMessage } from "../../base/error-message.ts";
import { bracketHost } from "../../base/ip-address.ts";
import { isObject } from "../../base/type-guards.ts";
import { parseDomainPattern } from "./domain-pattern.ts";

/**
 * A secret that the network proxy puts into requests to one domain. The definition names the place of the secret and never
 * contains it.
 */
export interface CredentialDefinition {
  /** Variable of the process that contains the placeholder. */
  name: string;
  /** Pattern of the hosts that receive the secret. */
  domain: string;
  /** Whether plain HTTP requests receive the secret too. Default: only HTTPS requests. */
  allowsPlainHttp: boolean;
  /** Lower-case name of the only header in which the proxy replaces the placeholder. */
  header: string;
  source: CredentialSource;
}

/** Place of a secret on the host of the proxy. */
export type CredentialSource = { type: "file"; path: string } | { type: "env"; variable: string };

const FORM = "NAME=DOMAIN:HEADER:file:PATH or NAME=DOMAIN:HEADER:env:VARIABLE";
const VARIABLE = /^[A-Za-z_]\w*$/;
const HEADER = /^[!#$%&'*+.^`|~\w-]+$/;
/** Headers that the proxy or the connection needs. */
const FORBIDDEN_HEADERS = /^(?:host|connection|content-length|transfer-encoding|upgrade|te|trailer|expect|proxy-.*)$/;

/** Parses `NAME=DOMAIN:HEADER:SOURCE`. Throws an error that quotes the text; the caller adds the field. */
export function parseCredential(text: string): CredentialDefinition {
  const [, name, domain = "", header = "", source = ""] =
    /^([^=:]*)=((?:http:\/\/)?(?:\[[^\]]*\]|[^:]*)):([^:]*):(.*)$/s.exec(text) ?? [];
  if (name === undefined) throw new Error(`\`${text}\` is not a credential; give ${FORM}`);
  return withLocation(`\`${text}\``, () => toDefinition({ name, domain, header, source }));
}

/** Parses the tables `[[credential]]` of a rules file. */
export function parseCredentialTables(tables: unknown): CredentialDefinition[] {
  if (!Array.isArray(tables)) throw new Error("`credential` must be a list of tables: [[credential]]");
  const parsed = tables.map((table: unknown, index) =>
    withLocation(`credential ${index + 1}`, () => {
      if (!isObject(table)) throw new Error("not a table");
      const { name, domain, header, source, ...unknown } = table;
      const [unknownKey] = Object.keys(unknown);
      if (unknownKey !== undefined)
        throw new Error(`unknown key \`${unknownKey}\`; expected name, domain, header and source`);
      const text = (key: string, value: unknown) => {
        if (typeof value !== "string") throw new Error(`\`${key}\` must be a string`);
        return value;
      };
      return toDefinition({
        name: text("name", name),
        domain: text("domain", domain),
        header: text("header", header),
        source: text("source", source),
      });
    }),
  );
  requireUniqueNames(parsed);
  return parsed;
}

/** Throws if two definitions have the same name. */
export function requireUniqueNames(definitions: readonly CredentialDefinition[]): void {
  const names = definitions.map(({ name }) => name);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) throw new Error(`credential \`${twice}\` is defined twice; give each a different name`);
}

/** Formats the place of a secret as users write it. */
export function formatSource(source: CredentialSource): string {
  return source.type === "file" ? `file:${source.path}` : `env:${source.variable}`;
}

/** Formats a definition so that `parseCredential` returns it again. */
export function formatCredential({ name, domain, allowsPlainHttp, header, source }: CredentialDefinition): string {
  return `${name}=${allowsPlainHttp ? "http://" : ""}${bracketHost(domain)}:${header}:${formatSource(source)}`;
}

type CredentialTexts = Record<"name" | "domain" | "header" | "source", string>;

function toDefinition({ name, domain, header, source }: CredentialTexts): CredentialDefinition {
  if (!VARIABLE.test(name)) throw new Error(`name \`${name}\` is not a variable name; give one such as API_KEY`);
  const [, scheme, host = ""] = /^(http:\/\/)?(.*)$/s.exec(domain) ?? [];
  const pattern = parseDomainPattern(host);
  if (pattern === "*") throw new Error("domain `*` would give the secret to every host; give one domain");
  if (!HEADER.test(header))
    throw new Error(`header \`${header}\` is not a header name; give one such as Authorization`);
  if (FORBIDDEN_HEADERS.test(header.toLowerCase()))
    throw new Error(`header \`${header}\` belongs to the connection; give one such as Authorization`);
  return {
    name,
    domain: pattern,
    allowsPlainHttp: scheme !== undefined,
    header: header.toLowerCase(),
    source: parseSource(source),
  };
}

function parseSource(text: string): CredentialSource {
  const [, type, place = ""] = /^(file|env):(.+)$/s.exec(text) ?? [];
  if (type === "file" && place.startsWith("/")) return { type, path: place };
  if (type === "file") throw new Error(`source \`${text}\` has a relative path; give file:/PATH`);
  if (type === "env" && VARIABLE.test(place)) return { type, variable: place };
  throw new Error(`source \`${text}\` is unknown; give file:/PATH or env:VARIABLE`);
}

function withLocation<T>(location: string, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    throw new Error(`${location}: ${errorMessage(error)}`, { cause: error });
  }
}
