import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { clientTarball, tarball } from "../../scripts/build/pack-all.ts";
import { PLATFORMS } from "../../scripts/build/platforms.ts";
import { API_GROUPS } from "../../scripts/docs/api-doc.ts";
import { availableSandboxes } from "../../src/sandbox/sandbox-probe.ts";
import { type ServeChild, serve } from "../support/servers/serve.ts";
import { skipUnless } from "../support/system/skip-unless.ts";
import { compile } from "./emitted-types.ts";
import { InstalledProject } from "./installed-project.ts";
import { filesIn, manifestIn } from "./tarballs.ts";

const MAX_DEPENDENCIES = 3;
/** Maximum size of an installation with the addon of its platform. `procwire` has about 48 MB. */
const MAX_INSTALLED_BYTES = 14 * 1024 * 1024;
/** Maximum size of `procwire` with all its dependencies. */
const MAX_WHOLE_BYTES = 55 * 1024 * 1024;

/** Groups of names that a client needs; `createLocalBackend` starts local processes. */
const CLIENT_NAMES = [
  ...["Environments", "Processes", "Client", "Files and ports", "Errors", "Versions and v0 types"].flatMap(
    (group) => API_GROUPS[group] ?? assert.fail(`no group ${group}`),
  ),
  "createLocalBackend",
];

describe("procwire-client, installed without scripts into an empty directory", { timeout: 600_000 }, () => {
  let server: ServeChild;
  let project: InstalledProject;
  before(async () => {
    server = await serve("--allow-forward");
    project = await InstalledProject.install({ tarballs: { "procwire-client": clientTarball() } });
  });
  after(async () => {
    await project?.[Symbol.asyncDispose]();
    await server.stop();
  });

  test(`brings at most ${MAX_DEPENDENCIES} dependencies and the addon of its platform, in a few megabytes`, () => {
    const installed = readdirSync(project.file()).filter((name) => !name.startsWith("."));
    const packages = installed.flatMap((name) =>
      name.startsWith("@") ? readdirSync(project.file(name)).map((inner) => `${name}/${inner}`) : [name],
    );
    const { dependencies = {}, version } = manifestIn(clientTarball());
    const platform = `@procwire/linux-${process.arch}`;
    const names = Object.keys(dependencies as Record<string, string>);
    assert.ok(names.length <= MAX_DEPENDENCIES, names.join(", "));
    assert.deepEqual(packages.sort(), [platform, ...names, "procwire-client"].sort());
    assert.equal(version, manifestIn(tarball(null)).version);
    const bytes = sizeOf(project.file());
    assert.ok(bytes < MAX_INSTALLED_BYTES, `${bytes} bytes`);
  });

  test("runs local and remote commands, terminals, files, HTTP requests and port forwards", async () => {
    const { stdout, stderr, code } = await project.script(`
      import { createServer } from "node:http";
      import { once } from "node:events";
      import { Environment, ExecServerClient, forwardPort, waitFor } from "procwire-client";
      const web = createServer((_, response) => response.end("healthy")).listen(0, "127.0.0.1");
      await once(web, "listening");
      const { port } = web.address();
      for (const target of [null, ${JSON.stringify(server.url)}]) {
        await using environment = await Environment.create(target);
        const script = ["sh", "-c", "test -t 0 && echo a terminal"];
        const { stdout } = await environment.run(script, { tty: true });
        await using cat = await environment.spawn("cat");
        await cat.write("echoed\\n");
        const { text } = await waitFor(cat, "echoed");
        const { exitReason } = await cat.wait({ until: { type: "output", pattern: "ech.ed" } });
        const path = process.cwd() + "/written";
        await environment.files.writeFile(path, "content");
        const content = await environment.files.readText(path);
        const { status, body } = await environment.http.request({ url: "http://127.0.0.1:" + port });
        console.log(stdout.trim(), text, exitReason, content, status, new TextDecoder().decode(body));
      }
      await using client = await ExecServerClient.connectWebSocket({ url: ${JSON.stringify(server.url)} });
      await using forwarded = await forwardPort(client, { port: 0, target: { host: "127.0.0.1", port } });
      console.log(await (await fetch("http://127.0.0.1:" + forwarded.port)).text());
      web.close();
      web.closeAllConnections();
    `);
    const line = "a terminal echoed undefined content 200 healthy";
    assert.deepEqual({ code, stderr, stdout }, { code: 0, stderr: "", stdout: `${line}\n${line}\nhealthy\n` });
  });

  test("compiles a program that uses it, with its own declarations", () => {
    compileProgram(
      project,
      `import { DisconnectedError, Environment, type ExecServerError, type RunResult } from "procwire-client";
      await using environment = await Environment.create("ws://127.0.0.1:7070");
      const result: RunResult = await environment.run(["uname", "-a"], { timeoutMs: 1000 });
      const isLost = (error: ExecServerError) => error instanceof DisconnectedError;
      export { isLost, result };`,
    );
  });

  test("contains no server program, no tools for models and no command line", () => {
    const directories = new Set(filesIn(clientTarball()).map((path) => path.split("/")[1]));
    for (const name of ["bin", "cli", "tools", "agent", "fanout", "web", "adapters"])
      assert.ok(!directories.has(name), name);
  });
});

describe("procwire-client next to procwire", { timeout: 600_000 }, () => {
  let server: ServeChild;
  let project: InstalledProject;
  before(async () => {
    server = await serve();
    const platform = PLATFORMS.find(({ cpu, libc }) => cpu === process.arch && libc === "glibc") ?? assert.fail();
    const tarballs = {
      "procwire-client": clientTarball(),
      procwire: tarball(null),
      [`@procwire/${platform.name}`]: tarball(platform),
    };
    // Fills npm's cache with the other dependencies.
    await (await InstalledProject.install({ tarballs }))[Symbol.asyncDispose]();
    project = await InstalledProject.install({ tarballs, npmArgs: ["--offline"], compiler: true });
  });
  after(async () => {
    await project?.[Symbol.asyncDispose]();
    await server.stop();
  });

  test("is installed once, also without network, and procwire contains no file of it", () => {
    assert.ok(!existsSync(project.file("procwire", "node_modules", "procwire-client")));
    const modules = (path: string) => filesIn(path).filter((name) => /^dist\/.*\.(js|d\.ts)$/.test(name));
    const client = new Set(modules(clientTarball()));
    assert.deepEqual(
      modules(tarball(null)).filter((name) => client.has(name)),
      [],
    );
    const { dependencies, version } = manifestIn(tarball(null));
    assert.equal((dependencies as Record<string, string>)["procwire-client"], version);
    const bytes = sizeOf(project.file());
    assert.ok(bytes < MAX_WHOLE_BYTES, `${bytes} bytes`);
  });

  test("exports the client names of procwire, and the same classes", async () => {
    const { stdout, stderr } = await project.script(`
      import * as whole from "procwire";
      import * as browser from "procwire/client";
      import * as client from "procwire-client";
      const differences = Object.keys(client).filter((name) => client[name] !== whole[name]);
      const connected = await browser.connectFromBrowser({ url: ${JSON.stringify(server.url)} });
      await connected.close();
      const lost = await connected.files.readText("/etc/hosts").catch((error) => error);
      const shared = [whole, browser].map(({ DisconnectedError }) => lost.constructor === DisconnectedError);
      console.log(JSON.stringify([Object.keys(client), Object.keys(whole), differences, shared]));
    `);
    assert.equal(stderr, "");
    const [client = [], whole = [], ...results]: unknown[][] = JSON.parse(stdout);
    assert.deepEqual(
      whole.filter((name) => CLIENT_NAMES.includes(`${name}`)),
      client,
    );
    assert.ok(client.length > 10 && whole.length > client.length);
    assert.deepEqual(results, [[], [true, true]]);
  });

  test("has the types of procwire, also where a class has private members", () => {
    compileProgram(
      project,
      `import * as client from "procwire-client";
      import * as whole from "procwire";
      import type { ExecServerClient } from "procwire/client";
      export const environment = (one: client.Environment): whole.Environment => one;
      export const back = (one: whole.Environment): client.Environment => one;
      export const classes: typeof whole.Environment = client.Environment;
      export const connected = (one: client.ExecServerClient): whole.ExecServerClient => one;
      export const inBrowsers = (one: client.ExecServerClient): ExecServerClient => one;
      export const error = (one: whole.ExecServerError): client.ExecServerError => one;
      export const embedded = () => client.ExecServerClient.connectInProcess(new whole.ExecServer(whole.createLocalHost()));`,
    );
  });

  test("embeds a server with procwire, whose file requests run in a sandbox", {
    skip: skipUnless(availableSandboxes().length > 0, "bubblewrap cannot run here"),
  }, async () => {
    const { stdout, stderr } = await project.script(`
      import { createLocalHost, ExecServer, listen } from "procwire";
      await using server = new ExecServer(createLocalHost());
      const listening = await listen(server, { type: "websocket", host: "127.0.0.1", port: 0 });
      const socket = new WebSocket(listening.url);
      await new Promise((resolve) => socket.addEventListener("open", resolve));
      const call = (id, method, params) => new Promise((resolve) => {
        socket.addEventListener("message", ({ data }) => {
          const message = JSON.parse(data);
          if (message.id === id) resolve(message);
        });
        socket.send(JSON.stringify({ id, method, params }));
      });
      await call(1, "initialize", { clientName: "test" });
      socket.send(JSON.stringify({ method: "initialized" }));
      const root = { path: { type: "special", value: { kind: "root" } }, access: "read" };
      const permissions = { type: "managed", file_system: { type: "restricted", entries: [root] }, network: "restricted" };
      const sandbox = { permissions, cwd: "file:///", workspaceRoots: [], windowsSandboxLevel: "disabled" };
      const { result, error } = await call(2, "fs/readFile", { path: "file://" + process.cwd() + "/package.json", sandbox });
      console.log(error?.message ?? JSON.parse(atob(result.dataBase64)).private);
      const denied = await call(3, "fs/writeFile", { path: "file://" + process.cwd() + "/new", dataBase64: "", sandbox });
      console.log(denied.error?.message);
      socket.close();
      await listening.close();
    `);
    assert.match(stdout, /^true\n.*(read-only|Read-only|denied|EROFS)/, stderr);
  });
});

/** Compiles a program of the project under \`strict\`, with all declarations. */
function compileProgram(project: InstalledProject, source: string): void {
  for (const name of ["@types/node", "undici-types"]) {
    mkdirSync(dirname(project.file(name)), { recursive: true });
    symlinkSync(resolve("node_modules", name), project.file(name));
  }
  writeFileSync(join(project.path, "main.ts"), source);
  const compilerOptions = { strict: true, noEmit: true, skipLibCheck: false, target: "es2024", module: "nodenext" };
  const options = { ...compilerOptions, lib: ["es2024", "esnext.disposable"], types: ["node"] };
  writeFileSync(join(project.path, "tsconfig.json"), JSON.stringify({ compilerOptions: options, files: ["main.ts"] }));
  compile(["-p", project.path]);
}

/** Returns the bytes of all files below a directory. */
function sizeOf(directory: string): number {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((bytes, entry) => bytes + statSync(join(entry.parentPath, entry.name)).size, 0);
}
