import type { EnvPolicy, ExecBackend, ExecProcess, SecretGuard } from "../exec-process.ts";

/** All variables of the host, as in a shell, except names and values that look like secrets. */
export const DEFAULT_ENV_POLICY: EnvPolicy = {
  inherit: "all",
  ignoreDefaultExcludes: false,
  exclude: [],
  set: {},
  includeOnly: [],
};

export interface SecretFilterOptions {
  /** Names that are passed on although they look like secrets. */
  inherit?: readonly string[];
  /** Called with the names that were dropped, each name once. */
  onDropped?: (names: readonly string[]) => void;
}

/**
 * Wraps a backend so that host secrets are dropped from every environment that a policy builds. It matches whole
 * words and values, whereas the default excludes of the wire protocol match substrings. An exact environment is not
 * filtered.
 */
export function filterSecrets(backend: ExecBackend, options: SecretFilterOptions = {}): ExecBackend {
  const allowed = [...(backend.secrets?.allowed ?? []), ...(options.inherit ?? [])];
  const reported = new Set<string>();
  const onDropped = (names: readonly string[]) => {
    const unreported = names.filter((name) => !reported.has(name));
    for (const name of unreported) reported.add(name);
    if (unreported.length > 0) options.onDropped?.(unreported);
    backend.secrets?.onDropped(names);
  };
  return {
    defaultCwd: backend.defaultCwd,
    secrets: { allowed, onDropped },
    async start(params): Promise<ExecProcess> {
      const shouldFilter = params.envPolicy && !params.envPolicy.ignoreDefaultExcludes;
      if (!shouldFilter) return backend.start(params);
      const secretGuard: SecretGuard = { inherit: [...(params.secretGuard?.inherit ?? []), ...allowed] };
      const process = await backend.start({ ...params, secretGuard });
      onDropped(process.droppedEnv ?? []);
      return process;
    },
    list: (options) => backend.list(options),
  };
}

/** Reports whether a variable looks like a credential, by its name or its value. */
export function looksSecret(name: string, value: string): boolean {
  const upper = name.toUpperCase();
  if (SECRET_NAMES.has(upper) || SECRET_ENDINGS.some((ending) => upper.endsWith(ending))) return true;
  const words = name.split(BETWEEN_WORDS).map((word) => word.replace(/\d+$/, "").toUpperCase());
  if (words.some((word) => SECRET_WORDS.has(word))) return true;
  return ADDRESS_ENDINGS.some((ending) => upper.endsWith(ending)) && WITH_USER_INFO.test(value);
}

/** Word boundaries: `API_KEY`, `api-key` and `apiKey` contain the word KEY; MONKEY and KEYBOARD do not. */
const BETWEEN_WORDS = /[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])/;

const SECRET_WORDS: ReadonlySet<string> = new Set([
  ...["KEY", "KEYS", "APIKEY", "SECRET", "SECRETS", "TOKEN", "TOKENS", "AUTHTOKEN"],
  ...["PASSWORD", "PASSWORDS", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS"],
]);

/** Names of secrets that contain none of the words above. */
const SECRET_NAMES: ReadonlySet<string> = new Set([
  ...["PGPASSWORD", "PGPASSFILE", "MYSQL_PWD", "REDISCLI_AUTH", "SSHPASS", "DSN"],
  ...["AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_AUTH_LOCATION", "ARM_CLIENT_CERTIFICATE_PATH"],
  ...["DOCKER_AUTH_CONFIG", "OCI_CLI_KEY_FILE", "BOTO_CONFIG", "CLOUDSDK_CONFIG"],
]);

const SECRET_ENDINGS: readonly string[] = ["_DSN", "_CONNECTION_STRING"];

/** A URL is a secret only if it contains a user name or password. */
const ADDRESS_ENDINGS: readonly string[] = ["_URL", "_URI"];
const WITH_USER_INFO = /^\s*[a-z][a-z\d+.-]*:\/\/[^/?#\s]*@/i;
