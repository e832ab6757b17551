import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, symlinkSync } from "node:fs";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { join, resolve } from "node:path";
import { describe, test } from "node:test";
import { clientTarball, RELEASE, tarball } from "../../scripts/build/pack-all.ts";
import { PLATFORMS } from "../../scripts/build/platforms.ts";
import { DocumentTerminal, documentedCommands, quickStart } from "../support/system/document-commands.ts";
import { skipUnless } from "../support/system/skip-unless.ts";
import { PackageRegistry } from "./package-registry.ts";

const NPM_SETTINGS = {
  npm_config_userconfig: process.env.npm_config_userconfig ?? "",
  npm_config_cache: process.env.npm_config_cache ?? "",
  // npm needs the certificate authority of a proxy, if this host has one.
  NODE_EXTRA_CA_CERTS: process.env.NODE_EXTRA_CA_CERTS ?? "",
};
/** The real npm, since a script of the same name precedes it on the PATH. */
const NPM = execFileSync("sh", ["-c", "command -v npm"], { encoding: "utf8" }).trim();
const has = (name: string) => spawnSync(name, ["--version"]).status === 0;

/**
 * An npm that offers this version of procwire as if it were published. Global packages go below the terminal's
 * directory.
 */
const npmWith = (registry: string) => `
for word; do
  shift
  if [ "$word" = procwire ]; then set -- "$@" 'file:${resolve(tarball(null))}' 'file:${resolve(clientTarball())}'
  else set -- "$@" "$word"; fi
done
exec '${NPM}' --prefer-offline '--@procwire:registry=${registry}' --prefix="$(case "$*" in *--global*) echo "$HOME/global";; *) pwd;; esac)" "$@"`;

describe("the documents' commands about packages", { timeout: 900_000 }, () => {
  test("README.md and docs/install.md: the commands install procwire, run a command, serve, complete, show the manual and compile", async () => {
    await using registry = await PackageRegistry.open();
    await using terminal = new DocumentTerminal({
      env: NPM_SETTINGS,
      programs: { npm: npmWith(registry.url) },
    });
    // Runs only programs that were installed here, not those of the clone.
    const type = (command: string) => terminal.type(`PATH="$HOME/global/bin:$PATH"; hash -r; set -e; ${command}`);
    for (const document of ["README.md", "docs/install.md"])
      for (const command of documentedCommands(document, "npm install procwire")) {
        const ran = await type(command);
        assert.equal(ran.code, 0, `${command}\n${ran.shown}`);
      }
    assert.equal((await type("command -v procwire")).shown.trim(), join(terminal.directory, "global/bin/procwire"));
    const [run = "", start = "", ...more] = documentedCommands("docs/install.md", "procwire start");
    assert.deepEqual(more, []);
    assert.match((await type(run)).shown, /^Linux /);
    const server = await terminal.begin(`PATH="$HOME/global/bin:$PATH"; ${start}`, /ws:\/\/127\.0\.0\.1:\d+/);
    await server.interrupt();
    const [complete = "", manual = "", ...others] = documentedCommands("docs/install.md", "completion bash");
    assert.deepEqual(others, []);
    assert.match((await type(`${complete}; complete -p procwire`)).shown, /^complete .* procwire$/m);
    if (has("man")) assert.match((await type(`MANPAGER=cat ${manual}`)).shown, /Processes over a wire/);
    const [compile = "", ...none] = documentedCommands("docs/install.md", "native/build.mjs");
    assert.deepEqual(none, []);
    const compiled = await type(compile);
    assert.equal(compiled.code, 0, compiled.shown);
    assert.ok(readFileSync(join(terminal.directory, "node_modules/procwire/native/build/procwire.node")).length > 0);
  });

  test("README.md and docs/install.md: a fresh clone installs and serves, and its quick start works", {
    skip: skipUnless(has("git") && has("c++"), "there is no git or no C++ compiler"),
  }, async () => {
    await using terminal = new DocumentTerminal({ env: NPM_SETTINGS });
    execFileSync("git", ["clone", "-q", "--no-local", resolve("."), join(terminal.directory, "clone")]);
    const [install = "", path = "", ...more] = documentedCommands("README.md", "npm ci");
    assert.deepEqual([...more, ...documentedCommands("docs/install.md", "npm ci")], [install, path]);
    const installed = await terminal.type(`cd clone && ${install}`);
    assert.equal(installed.code, 0, installed.shown);
    const [, start = ""] = /In one terminal, start a server with `(.*?)`/.exec(readFileSync("README.md", "utf8")) ?? [];
    const urlPattern = /--connect (ws:\/\/127\.0\.0\.1:\d+) --/;
    const server = await terminal.begin(`cd clone && ${path} && ${start}`, urlPattern);
    const [, url = ""] = urlPattern.exec(server.shown) ?? [];
    const walked = await terminal.type(
      `cd clone && ${path} && set -eu -o pipefail\n${quickStart().replaceAll("ws://127.0.0.1:7070", url)}`,
    );
    assert.equal(walked.code, 0, walked.shown);
    assert.match(walked.shown, /^Linux .*HELLO\n\d+ \d+\n[a-z0-9]{12}\nmade\n/s);
    await server.interrupt();
  });

  test("docs/install.md: the tarballs install together without a registry", async () => {
    await using terminal = new DocumentTerminal({
      env: NPM_SETTINGS,
      programs: { npm: `exec '${NPM}' --offline "$@"` },
    });
    symlinkSync(resolve(RELEASE), join(terminal.directory, "release"));
    const [install = "", ...more] = documentedCommands("docs/install.md", "npm install ./release");
    assert.deepEqual(more, []);
    const ran = await terminal.type(install.replace("linux-x64", `linux-${process.arch}`));
    assert.equal(ran.code, 0, ran.shown);
    const program =
      'import("procwire").then((names) => console.log(typeof names.ExecServerClient, typeof names.ExecServer))';
    const { shown } = await terminal.type(`node -e '${program}'; ls node_modules/@procwire`);
    assert.deepEqual(shown.trim().split(/\s+/), ["function", "function", `linux-${process.arch}`]);
  });

  test("docs/install.md: the packaging commands are scripts of this clone, and publishing uploads each package", async () => {
    const { scripts } = JSON.parse(readFileSync("package.json", "utf8"));
    for (const command of documentedCommands("docs/install.md", "npm run prebuilds"))
      assert.ok((/^npm run ([\w:]+)$/.exec(command)?.[1] as string) in scripts, command);
    const published: string[] = [];
    const registry = createServer((request: IncomingMessage, response) => {
      if (request.method === "PUT") published.push(decodeURIComponent(request.url ?? "").slice(1));
      request.resume().on("end", () => response.writeHead(request.method === "PUT" ? 201 : 404).end("{}"));
    }).listen(0, "127.0.0.1");
    await new Promise((ready) => registry.once("listening", ready));
    const { port } = registry.address() as AddressInfo;
    try {
      await using terminal = new DocumentTerminal({
        env: { ...NPM_SETTINGS, npm_config_registry: `http://127.0.0.1:${port}/` },
        programs: {
          npm: `exec '${NPM}' --registry=http://127.0.0.1:${port}/ --//127.0.0.1:${port}/:_authToken=x "$@"`,
        },
      });
      const [publish = "", ...more] = documentedCommands("docs/install.md", "npm publish");
      assert.deepEqual(more, []);
      const ran = await terminal.type(`cd '${resolve(".")}' && ${publish}`);
      assert.equal(ran.code, 0, ran.shown);
      assert.deepEqual(published.slice(0, -2).sort(), PLATFORMS.map(({ name }) => `@procwire/${name}`).sort());
      assert.deepEqual(published.slice(-2), ["procwire-client", "procwire"], "a package follows its dependencies");
    } finally {
      registry.closeAllConnections();
      registry.close();
    }
  });
});
