import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import type { EnvPolicy } from "../../src/exec/exec-process.ts";
import { buildChildEnv } from "../../src/local/child-env.ts";

const host = {
  PATH: "/bin",
  HOME: "/root",
  Lang: "C",
  EDITOR: "vi",
  API_KEY: "k",
  my_secret_thing: "s",
  GITHUB_TOKEN: "t",
  UNSET: undefined,
};
const policy = (changes: Partial<EnvPolicy>): EnvPolicy => ({
  inherit: "all",
  ignoreDefaultExcludes: false,
  exclude: [],
  set: {},
  includeOnly: [],
  ...changes,
});
const build = (changes: Partial<EnvPolicy>, env: Record<string, string> = {}) =>
  buildChildEnv({ env, envPolicy: policy(changes) }, host);

describe("buildChildEnv", () => {
  test("returns exactly the request's variables, including secrets, without a policy", () => {
    assert.deepEqual(buildChildEnv({ env: { A: "1", MY_TOKEN: "x" } }, host), { A: "1", MY_TOKEN: "x" });
  });

  test("inherits all, core or no variables and excludes variables that look like secrets", () => {
    assert.deepEqual(build({}), { PATH: "/bin", HOME: "/root", Lang: "C", EDITOR: "vi" });
    assert.deepEqual(build({ inherit: "core" }), { PATH: "/bin", HOME: "/root", Lang: "C" });
    assert.deepEqual(build({ inherit: "none" }), {});
    assert.deepEqual(build({ ignoreDefaultExcludes: true }), {
      PATH: "/bin",
      HOME: "/root",
      Lang: "C",
      EDITOR: "vi",
      API_KEY: "k",
      my_secret_thing: "s",
      GITHUB_TOKEN: "t",
    });
  });

  test("excludes the service manager's variables unless the request sets them", () => {
    const service = { ...host, NOTIFY_SOCKET: "/run/systemd/notify", WATCHDOG_PID: "1", WATCHDOG_USEC: "1" };
    const envPolicy = policy({ ignoreDefaultExcludes: true });
    assert.deepEqual(buildChildEnv({ env: {}, envPolicy }, service), buildChildEnv({ env: {}, envPolicy }, host));
    const own = { NOTIFY_SOCKET: "/run/own" };
    assert.equal(buildChildEnv({ env: own, envPolicy }, service).NOTIFY_SOCKET, "/run/own");
  });

  test("applies exclude, set, includeOnly and the request's variables in this order", () => {
    assert.deepEqual(build({ exclude: ["h*", "EDIT?R"] }), { PATH: "/bin", Lang: "C" });
    assert.deepEqual(build({ inherit: "none", exclude: ["A*"], set: { A1: "set" } }), { A1: "set" });
    assert.deepEqual(build({ set: { A1: "set", B1: "set" }, includeOnly: ["a*", "PATH"] }), {
      PATH: "/bin",
      A1: "set",
    });
    assert.deepEqual(build({ set: { PATH: "/set" }, includeOnly: ["home"] }, { PATH: "/own", MY_KEY: "own" }), {
      HOME: "/root",
      PATH: "/own",
      MY_KEY: "own",
    });
  });

  test("removes the host's credentials from every source", () => {
    const names = [
      "OPENAI_IDENTITY_TOKEN_FILE",
      "openai_federation_rule_id",
      "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
      "Codex_Exec_Server_Noise_Auth_Token",
      "NODE_REPL_AUTH_TOKEN",
      "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE",
    ];
    const credentials = Object.fromEntries(names.map((name) => [name, "x"]));
    assert.deepEqual(buildChildEnv({ env: { ...credentials, KEPT: "1" } }, {}), { KEPT: "1" });
    const everything = policy({ ignoreDefaultExcludes: true, set: credentials });
    assert.deepEqual(buildChildEnv({ env: {}, envPolicy: everything }, credentials), {});
  });

  test("matches wildcards like the equivalent regular expression", () => {
    const letters = fc.string({ unit: fc.constantFrom("a", "B", "_", ".", "é"), maxLength: 8 });
    const patterns = fc.string({ unit: fc.constantFrom("a", "b", "_", ".", "É", "*", "?"), maxLength: 8 });
    fc.assert(
      fc.property(letters, patterns, (name, pattern) => {
        const expression = pattern.replace(/[.]/g, "\\.").replaceAll("*", ".*").replaceAll("?", ".");
        const expected = new RegExp(`^${expression}$`, "iu").test(name);
        const filtered = buildChildEnv({ env: {}, envPolicy: policy({ exclude: [pattern] }) }, { [name]: "x" });
        assert.equal(!(name in filtered), expected, `${JSON.stringify(name)} against ${JSON.stringify(pattern)}`);
      }),
      { numRuns: 1000 },
    );
  });
});
