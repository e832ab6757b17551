import type { EnvPolicy, ExecBackend, ExecProcess, SecretGuard } from "../exec-process.ts";

/** As a shell would start it: the host's variables, without those that look like secrets. */
export const HOST_ENVIRONMENT: EnvPolicy = {
  inherit: "all",
  ignoreDefaultExcludes: false,
  exclude: [],
  set: {},
  includeOnly: [],
};

export interface GuardOptions {
  /** Names that are passed on although they look like secrets. */
  inherit?: readonly string[];
  /** Told what was left out, each name once. */
  onDropped?: (names: readonly string[]) => void;
}

/**
 * The same backend, which leaves the host's secrets out of every environment that is made by a policy. By whole words and
 * by value, where the wire's default excludes go by letters alone. An exact environment stays exact.
 */
export function guardSecrets(backend: ExecBackend, options: GuardOptions = {}): ExecBackend {
  const inherit = [...(backend.secrets?.inherit ?? []), ...(options.inherit ?? [])];
  const told = new Set<string>();
  const onDropped = (names: readonly string[]) => {
    const fresh = names.filter((name) => !told.has(name));
    for (const name of fresh) told.add(name);
    if (fresh.length > 0) options.onDropped?.(fresh);
    backend.secrets?.onDropped(names);
  };
  return {
    defaultCwd: backend.defaultCwd,
    secrets: { inherit, onDropped },
    async start(params): Promise<ExecProcess> {
      const isGuarded = params.envPolicy && !params.envPolicy.ignoreDefaultExcludes;
      if (!isGuarded) return backend.start(params);
      const secretGuard: SecretGuard = { inherit: [...(params.secretGuard?.inherit ?? []), ...inherit] };
      const process = await backend.start({ ...params, secretGuard });
      onDropped(process.droppedEnv ?? []);
      return process;
    },
    list: (options) => backend.list(options),
  };
}

/** Whether a variable looks like something only its owner should have. */
export function looksSecret(name: string, value: string): boolean {
  const upper = name.toUpperCase();
  if (SECRET_NAMES.has(upper) || SECRET_ENDINGS.some((ending) => upper.endsWith(ending))) return true;
  const words = name.split(BETWEEN_WORDS).map((word) => word.replace(/\d+$/, "").toUpperCase());
  if (words.some((word) => SECRET_WORDS.has(word))) return true;
  return ADDRESS_ENDINGS.some((ending) => upper.endsWith(ending)) && WITH_USER_INFO.test(value);
}

/** `API_KEY`, `api-key` and `apiKey` have the word KEY; MONKEY and KEYBOARD do not. */
const BETWEEN_WORDS = /[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])/;

const SECRET_WORDS: ReadonlySet<string> = new Set([
  ...["KEY", "KEYS", "APIKEY", "SECRET", "SECRETS", "TOKEN", "TOKENS", "AUTHTOKEN"],
  ...["PASSWORD", "PASSWORDS", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS"],
]);

/** Secrets whose names have none of these words. */
const SECRET_NAMES: ReadonlySet<string> = new Set([
  ...["PGPASSWORD", "PGPASSFILE", "MYSQL_PWD", "REDISCLI_AUTH", "SSHPASS", "DSN"],
  ...["AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_AUTH_LOCATION", "ARM_CLIENT_CERTIFICATE_PATH"],
  ...["DOCKER_AUTH_CONFIG", "OCI_CLI_KEY_FILE", "BOTO_CONFIG", "CLOUDSDK_CONFIG"],
]);

const SECRET_ENDINGS: readonly string[] = ["_DSN", "_CONNECTION_STRING"];

/** An address is a secret only with a name or a password in it. */
const ADDRESS_ENDINGS: readonly string[] = ["_URL", "_URI"];
const WITH_USER_INFO = /^\s*[a-z][a-z\d+.-]*:\/\/[^/?#\s]*@/i;
