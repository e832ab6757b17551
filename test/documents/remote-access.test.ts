import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { request } from "node:https";
import { join } from "node:path";
import { describe, test } from "node:test";
import { opensslMissing } from "../support/system/certificates.ts";
import { DocumentTerminal, documentedCommands } from "../support/system/document-commands.ts";
import { runSnippet, snippetsOf } from "../support/system/document-snippets.ts";
import { freePort } from "../support/system/free-port.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

const DOCUMENT = "docs/remote-access.md";
/** Resolves `build.example` to this host in every Node program. */
const NODE_OPTIONS = `--import=${join(import.meta.dirname, "../support/system/example-hosts.mjs")}`;
const missing = opensslMissing();

describe("docs/remote-access.md", { timeout: 600_000, skip: skipUnless(missing === null, missing ?? "") }, () => {
  test("its commands, typed on a server and on another machine, run a command over TLS with a token", async () => {
    const port = String(await freePort());
    const commands = (part: string) =>
      documentedCommands(DOCUMENT, part).map((command) => command.replaceAll("7443", port));
    await using host = new DocumentTerminal();
    await using other = new DocumentTerminal({
      env: { NODE_OPTIONS },
      // Copies from the directory of the server's terminal.
      programs: { scp: `for file; do [ "$file" = . ] || cp -p "${host.directory}/\${file#build.example:}" .; done` },
    });
    for (const part of ["openssl rand", "openssl req"])
      for (const command of commands(part)) {
        const made = await host.type(command);
        assert.equal(made.code, 0, made.shown);
      }
    const [serve = "", ...none] = commands("procwire serve");
    assert.deepEqual(none, []);
    const server = await host.begin(serve, /web console/);

    const [copy = "", run = "", ps = "", ...more] = commands("scp");
    assert.deepEqual(more, []);
    for (const [command, shows] of [
      [copy, /^$/],
      [run, /^Linux /],
      [ps, /HANDLE/],
    ] as const) {
      const { shown, code } = await other.type(command);
      assert.equal(code, 0, `${command}\n${shown}`);
      assert.match(shown, shows);
    }
    const file = (name: string) => readFileSync(join(other.directory, name), "utf8");
    const [program] = snippetsOf("remote-access.md");
    assert.ok(program);
    const files = { token: file("token"), "cert.pem": file("cert.pem") };
    const printed = runSnippet(program.code.replaceAll("7443", port), { env: { NODE_OPTIONS }, files });
    assert.equal(printed, program.prints);

    const [console = "", ...noOther] = commands("procwire console");
    assert.deepEqual(noOther, []);
    const login = await other.type(console);
    assert.match(login.shown, new RegExp(`^https://build\\.example:${port}/#token=\\S+\\n$`));
    const page = await get(Number(port), files["cert.pem"]);
    assert.deepEqual([page.status, /<title>procwire<\/title>/.test(page.body)], [200, true]);
    for (const [name, command, message] of [
      ["the token", run.replace("--token-file token", ""), /401/],
      ["--tls-ca", run.replace("--tls-ca cert.pem", ""), /the issuer of the server's certificate is not trusted/],
      ["--allow-host", run.replace("build.example", "other.example"), /altnames|Host|certificate/i],
    ] as const) {
      const { shown, code } = await other.type(command);
      assert.notEqual(code, 0, `without ${name}`);
      assert.match(shown, message);
    }
    await server.interrupt();
  });
});

/** Gets the console of `build.example`, as a browser that trusts the certificate does. */
function get(port: number, ca: string): Promise<{ status: number | undefined; body: string }> {
  return new Promise((resolve, reject) => {
    const headers = { host: `build.example:${port}` };
    request({ host: "127.0.0.1", port, ca, servername: "build.example", headers }, (response) => {
      let body = "";
      response.setEncoding("utf8").on("data", (text: string) => {
        body += text;
      });
      response.on("end", () => resolve({ status: response.statusCode, body })).on("error", reject);
    })
      .on("error", reject)
      .end();
  });
}
