/** npm and pip with a registry that requires a token, which never enters their sandbox. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { localSandboxes } from "../../../src/host/host-sandboxes.ts";
import { CertificateAuthority } from "../../../src/network/credentials/certificate-authority.ts";
import { SECRET } from "../../support/network/credential-origin.ts";
import { noTestNetwork, TestNetwork } from "../../support/network/test-network.ts";
import { pythonPath, writeNpmRegistry, writeWheel } from "../../support/network/tiny-packages.ts";
import { PROCWIRE } from "../../support/servers/serve.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";

const runs = (...[program = "", ...args]: string[]) => spawnSync(program, args, { stdio: "ignore" }).status === 0;
const noNetwork =
  noTestNetwork ||
  skipUnless(localSandboxes().includes("managed-network"), "the sandbox cannot enforce network rules here");
const ADDRESS = "93.184.216.34";
/** Prints everything that a sandboxed command can read of itself, of other processes and of files that it wrote. */
const LOOK_AROUND = "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; cat $(find . -type f)";

interface Registry {
  network: TestNetwork;
  /** Working directory of the commands. */
  work: string;
  /** Runs a script in a sandbox whose variable `TOKEN` is a credential of the registry, or unset. */
  run(script: string, more?: readonly string[]): { status: number | null; stdout: string; stderr: string };
}

/** An HTTPS registry in a network namespace. Its home is outside of /tmp, which is private in a sandbox. */
async function withRegistry(t: TestContext, body: (registry: Registry) => void): Promise<void> {
  const home = mkdtempSync(join(homedir(), "procwire-registry-"));
  t.after(() => rmSync(home, { recursive: true, force: true }));
  const [root, work, secret, certificate] = ["files", "work", "secrets/token", "authority.pem"].map((name) =>
    join(home, name),
  ) as [string, string, string, string];
  for (const directory of ["files/simple/tiny", "work", "secrets"])
    mkdirSync(join(home, directory), { recursive: true });
  writeFileSync(secret, `${SECRET}\n`);
  writeNpmRegistry(root, "https://registry.test");
  const wheel = writeWheel(root);
  writeFileSync(join(root, "simple/tiny/index.html"), `<a href="/${wheel}">${wheel}</a>`);
  const authority = CertificateAuthority.create();
  writeFileSync(certificate, authority.certificate);
  const basic = Buffer.from(`user:${SECRET}`).toString("base64");
  const authorizations = [`Bearer ${SECRET}`, `Basic ${basic}`];
  await using network = await TestNetwork.open({
    names: { "registry.test": [[ADDRESS]] },
    servers: [{ address: ADDRESS, port: 443, root, authorizations, tls: authority.leafFor("registry.test") }],
  });
  const credential = ["--credential", `TOKEN=registry.test:Authorization:file:${secret}`];
  body({
    ...{ network, work },
    run: (script, more = credential) => {
      const [program = "", ...under] = [...network.command, "env", "-C", work, PROCWIRE, "run"];
      const policy = ["--sandbox", "workspace-write", "--network", "allow:registry.test", ...more];
      const env = { PATH: process.env.PATH, HOME: home, NODE_EXTRA_CA_CERTS: certificate };
      const args = [...under, ...policy, "--", "/bin/bash", "-c", script];
      return spawnSync(program, args, { env, encoding: "utf8", timeout: 300_000 });
    },
  });
}

/** Asserts that the script installs the package with the credential alone, and that the secret is nowhere in the sandbox. */
function assertInstalls({ network, run }: Registry, install: string): void {
  const without = run(`TOKEN=procwire-credential-TOKEN-0 && ${install}`, []);
  assert.notEqual(without.status, 0, without.stdout);
  const { status, stdout, stderr } = run(`{ ${install}; } && { ${LOOK_AROUND}; }`);
  assert.equal(status, 0, `${stdout.slice(0, 4000)}${stderr}`);
  assert.match(stdout, /^installed$/m);
  assert.match(stdout, /^TOKEN=procwire-credential-TOKEN-[\da-f]{32}$/m);
  const encoded = Buffer.from(`user:${SECRET}`).toString("base64");
  for (const text of [SECRET, encoded]) assert.ok(!stdout.includes(text) && !stderr.includes(text));
  assert.ok(network.requests.every((request) => request.startsWith(`${ADDRESS}:443 GET `)));
}

describe("a registry that requires a token", { timeout: 600_000 }, () => {
  const noNpm = noNetwork || skipUnless(runs("npm", "--version"), "npm is missing");
  test("serves npm, which has a placeholder as its _authToken", { skip: noNpm }, (t) =>
    withRegistry(t, (registry) => {
      const rc = `registry=https://registry.test/\n//registry.test/:_authToken=\${TOKEN}\n`;
      writeFileSync(join(registry.work, ".npmrc"), rc);
      writeFileSync(join(registry.work, "package.json"), "{}");
      assertInstalls(
        registry,
        `export TOKEN npm_config_cache=$PWD/cache npm_config_update_notifier=false &&
        npm install --no-audit --no-fund --fetch-retries 0 tiny && node -p 'require("tiny")'`,
      );
    }),
  );

  const noPip = noNetwork || skipUnless(runs("python3", "-m", "pip", "--version"), "pip is missing");
  test("serves pip, which has a placeholder as the password of its index", { skip: noPip }, (t) =>
    withRegistry(t, (registry) => {
      const python = pythonPath();
      assertInstalls(
        registry,
        `${python} -m pip install -v --cache-dir cache --no-input --disable-pip-version-check --retries 0 --target lib \\
          --index-url https://user:$TOKEN@registry.test/simple tiny && PYTHONPATH=lib ${python} -c 'import tiny'`,
      );
    }),
  );
});
