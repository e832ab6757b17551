import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { EnvPolicy } from "../../src/exec/exec-process.ts";
import { childEnvironment } from "../../src/local/child-env.ts";

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
const made = (changes: Partial<EnvPolicy>, env: Record<string, string> = {}) =>
  childEnvironment({ env, envPolicy: policy(changes) }, host);

describe("a child's environment", () => {
  it("is exactly the request's without a policy, secrets and all", () => {
    assert.deepEqual(childEnvironment({ env: { A: "1", MY_TOKEN: "x" } }, host), { A: "1", MY_TOKEN: "x" });
    assert.deepEqual(childEnvironment({ env: {}, envPolicy: null }, host), {});
  });

  it("inherits everything, the core or nothing, and leaves out what looks like a secret", () => {
    assert.deepEqual(made({}), { PATH: "/bin", HOME: "/root", Lang: "C", EDITOR: "vi" });
    assert.deepEqual(made({ inherit: "core" }), { PATH: "/bin", HOME: "/root", Lang: "C" });
    assert.deepEqual(made({ inherit: "none" }), {});
    assert.deepEqual(made({ ignoreDefaultExcludes: true }), {
      PATH: "/bin",
      HOME: "/root",
      Lang: "C",
      EDITOR: "vi",
      API_KEY: "k",
      my_secret_thing: "s",
      GITHUB_TOKEN: "t",
    });
  });

  it("takes its steps in order: exclude, set, includeOnly, and the request's own last", () => {
    assert.deepEqual(made({ exclude: ["h*", "EDIT?R"] }), { PATH: "/bin", Lang: "C" });
    assert.deepEqual(made({ inherit: "none", exclude: ["A*"], set: { A1: "set" } }), { A1: "set" });
    assert.deepEqual(made({ set: { A1: "set", B1: "set" }, includeOnly: ["a*", "PATH"] }), {
      PATH: "/bin",
      A1: "set",
    });
    assert.deepEqual(
      made({ set: { PATH: "/set" }, includeOnly: ["home"] }, { PATH: "/own", MY_KEY: "own" }),
      {
        HOME: "/root",
        PATH: "/own",
        MY_KEY: "own",
      },
    );
  });

  it("never has the host's own credentials, from whatever source", () => {
    const names = [
      "OPENAI_IDENTITY_TOKEN_FILE",
      "openai_federation_rule_id",
      "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
      "Codex_Exec_Server_Noise_Auth_Token",
      "NODE_REPL_AUTH_TOKEN",
      "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE",
    ];
    const credentials = Object.fromEntries(names.map((name) => [name, "x"]));
    assert.deepEqual(childEnvironment({ env: { ...credentials, KEPT: "1" } }, {}), { KEPT: "1" });
    const everything = policy({ ignoreDefaultExcludes: true, set: credentials });
    assert.deepEqual(childEnvironment({ env: {}, envPolicy: everything }, credentials), {});
  });

  it("matches patterns as a plain translation to an expression does", () => {
    const letters = fc.string({ unit: fc.constantFrom("a", "B", "_", ".", "é"), maxLength: 8 });
    const patterns = fc.string({ unit: fc.constantFrom("a", "b", "_", ".", "É", "*", "?"), maxLength: 8 });
    fc.assert(
      fc.property(letters, patterns, (name, pattern) => {
        const expression = pattern.replace(/[.]/g, "\\.").replaceAll("*", ".*").replaceAll("?", ".");
        const expected = new RegExp(`^${expression}$`, "iu").test(name);
        const kept = childEnvironment(
          { env: {}, envPolicy: policy({ exclude: [pattern] }) },
          { [name]: "x" },
        );
        assert.equal(!(name in kept), expected, `${JSON.stringify(name)} against ${JSON.stringify(pattern)}`);
      }),
      { numRuns: 1000 },
    );
  });
});
