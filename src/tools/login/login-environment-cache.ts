import type { ExecBackend } from "../../exec/exec-process.ts";
import { captureLoginEnvironment, type LoginEnvironment, type LoginProbe } from "./login-environment.ts";

/** Maximum time of a profile. A slower one probably hangs, for example on a lock of a version manager. */
export const LOGIN_DEADLINE_MS = 10_000;

/** Captured environments by host, shared by all tools of that host, and by shell, sandbox and start parameters. */
const captured = new WeakMap<ExecBackend, Map<string, Promise<LoginEnvironment>>>();

/**
 * Returns the environment of a login shell on a host. Captures it on first use and caches it. `generation` changes when the
 * host restarts, because its profile may have changed. `sandbox` is the sandbox in which the profile runs.
 */
export function loginEnvironment(
  host: ExecBackend,
  generation: number,
  sandbox: unknown,
  probe: LoginProbe,
): Promise<LoginEnvironment> {
  const environments = captured.get(host) ?? new Map<string, Promise<LoginEnvironment>>();
  captured.set(host, environments);
  const { env, envPolicy } = probe.start;
  const key = JSON.stringify([generation, probe.shell, env, envPolicy, sandbox]);
  const known = environments.get(key);
  if (known) return known;
  const capturing = captureLoginEnvironment(probe).then((login) => {
    if (login.type === "unreachable") environments.delete(key);
    return login;
  });
  environments.set(key, capturing);
  return capturing;
}
