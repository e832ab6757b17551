import { randomBytes } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { errorMessage } from "../../base/error-message.ts";
import { type CredentialDefinition, formatSource } from "../../protocol/network/credential-definition.ts";
import { matchesDomain } from "../../protocol/network/domain-pattern.ts";
import { RequestSecrets } from "./request-secrets.ts";

/** A shorter secret would also match other texts of a response. */
const MIN_SECRET_LENGTH = 8;
/** A longer header exceeds the limit of most servers. */
const MAX_SECRET_LENGTH = 16 * 1024;

/** Variables that name a file of trusted certificates, for TLS libraries, package managers and SDKs. */
const CA_VARIABLES = [
  ...["SSL_CERT_FILE", "NIX_SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "DENO_CERT"],
  ...["REQUESTS_CA_BUNDLE", "PIP_CERT", "npm_config_cafile", "NPM_CONFIG_CAFILE", "YARN_HTTPS_CA_FILE_PATH"],
  ...["CARGO_HTTP_CAINFO", "BUNDLE_SSL_CA_CERT", "AWS_CA_BUNDLE", "PERL_LWP_SSL_CA_FILE", "CODEX_CA_CERTIFICATE"],
  ...["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE"],
];

/** The credentials of one process, with a random placeholder for each. Secrets are read when a connection needs them. */
export class ProcessCredentials {
  readonly #placeholders: readonly { definition: CredentialDefinition; placeholder: string }[];

  constructor(definitions: readonly CredentialDefinition[]) {
    this.#placeholders = definitions.map((definition) => ({
      definition,
      placeholder: `procwire-credential-${definition.name}-${randomBytes(16).toString("hex")}`,
    }));
  }

  /** Returns the variables of the process: the placeholders, and the file of trusted certificates. */
  variables(bundlePath: string): Record<string, string> {
    return Object.fromEntries([
      ...CA_VARIABLES.map((name) => [name, bundlePath] as const),
      ...this.#placeholders.map(({ definition, placeholder }) => [definition.name, placeholder] as const),
    ]);
  }

  /** Reports whether a credential belongs to this host. */
  covers(host: string): boolean {
    return this.#placeholders.some(({ definition }) => matchesDomain(definition.domain, host));
  }

  /** Rejects with an error for users if a secret cannot be read. */
  async requireSources(): Promise<void> {
    await Promise.all(this.#placeholders.map(({ definition }) => readSecret(definition)));
  }

  /** Reads the secrets for a connection to this host. Returns null if it gets none. */
  async open(host: string, { isEncrypted }: { isEncrypted: boolean }): Promise<RequestSecrets | null> {
    const matching = this.#placeholders.filter(
      ({ definition }) => matchesDomain(definition.domain, host) && (isEncrypted || definition.allowsPlainHttp),
    );
    if (matching.length === 0) return null;
    const secrets = matching.map(async ({ definition, placeholder }) => ({
      header: definition.header,
      placeholder,
      secret: await readSecret(definition),
    }));
    return new RequestSecrets(await Promise.all(secrets));
  }
}

/** Reads a secret. An error names the credential and its source, and never contains the secret. */
async function readSecret(definition: CredentialDefinition): Promise<string> {
  const { name, source } = definition;
  const fail = (problem: string, cause?: unknown): never => {
    throw new Error(`credential \`${name}\`: source \`${formatSource(source)}\` ${problem}`, { cause });
  };
  let text: string | undefined;
  if (source.type === "env") text = process.env[source.variable] ?? fail("is not set in the environment of the server");
  else {
    try {
      // Other kinds of files may block the reader.
      if ((await stat(source.path)).isFile()) text = await readFile(source.path, "utf8");
    } catch (error) {
      return fail(`cannot be read: ${errorMessage(error)}`, error);
    }
  }
  if (text === undefined) return fail("is not a regular file");
  const secret = text.replace(/\r?\n$/, "");
  if (secret.length < MIN_SECRET_LENGTH || secret.length > MAX_SECRET_LENGTH)
    return fail(`has ${secret.length} characters; expected ${MIN_SECRET_LENGTH} to ${MAX_SECRET_LENGTH}`);
  if (!/^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(secret))
    return fail("contains a line break or another character that a header cannot have");
  return secret;
}
