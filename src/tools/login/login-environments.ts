import type { ExecBackend } from "../../exec/exec-process.ts";
import { type LoginEnvironment, type LoginProbe, takeLoginEnvironment } from "./login-environment.ts";

/** A profile that takes longer than this hangs, for example on a version manager's lock. */
export const LOGIN_DEADLINE_MS = 10_000;

/** By host, shared by all tools that run commands there; then by shell, walls and what the shell is started with. */
const taken = new WeakMap<ExecBackend, Map<string, Promise<LoginEnvironment>>>();

/**
 * The environment of a login shell on a host: taken when a command first needs it, then known. `generation` changes when
 * the host was restarted, whose profile may then say something else; `walls` are what the profile runs behind.
 */
export function loginEnvironment(
  host: ExecBackend,
  generation: number,
  walls: unknown,
  probe: LoginProbe,
): Promise<LoginEnvironment> {
  const ofHost = taken.get(host) ?? new Map<string, Promise<LoginEnvironment>>();
  taken.set(host, ofHost);
  const { env, envPolicy } = probe.start;
  const key = JSON.stringify([generation, probe.shell, env, envPolicy, walls]);
  const known = ofHost.get(key);
  if (known) return known;
  const taking = takeLoginEnvironment(probe).then((login) => {
    if (login.type === "unreachable") ofHost.delete(key);
    return login;
  });
  ofHost.set(key, taking);
  return taking;
}
