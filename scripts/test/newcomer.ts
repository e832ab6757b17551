/**
 * `npm run newcomer`: walks through the README and the guides as a new user does. It installs the packed tarballs
 * (`npm run pack:all`) into an empty directory, without scripts, and types the documented commands in a real terminal
 * (tmux) and in Chromium. It reads the documents from the installed package, prints each step, and ends at the first
 * difference with the content of the screen.
 */
import assert from "node:assert/strict";
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { openBrowser, screenText, sectionLink, signedIn, startOnPage } from "../../test/browser/browser.ts";
import { PackageRegistry } from "../../test/packages/package-registry.ts";
import { report, startMockResponses } from "../../test/support/models/mock-responses.ts";
import { freePort } from "../../test/support/system/free-port.ts";
import { TmuxScreen } from "../../test/support/system/tmux-screen.ts";
import { until } from "../../test/support/system/until.ts";
import { clientTarball, tarball } from "../build/pack-all.ts";

process.chdir(fileURLToPath(new URL("../..", import.meta.url)));
const DOCUMENTED_URL = "ws://127.0.0.1:7070";
const EXAMPLE_HOSTS = resolve("test/support/system/example-hosts.mjs");

let steps = 0;
let currentStep = "";
/** Runs a step of the walk, and prints it when it has succeeded. */
async function step<T>(title: string, action: () => Promise<T>): Promise<T> {
  currentStep = title;
  const result = await action();
  console.log(`ok ${String(++steps).padStart(2)}  ${title}`);
  return result;
}

/** The directory of a new user, with a terminal and the installed package. */
class Walk {
  readonly directory: string;
  readonly screen: TmuxScreen;
  /** URL of the server that `procwire start` runs. */
  url = DOCUMENTED_URL;

  constructor(directory: string, env: Readonly<Record<string, string>>) {
    this.directory = directory;
    this.screen = new TmuxScreen(`procwire-newcomer-${process.pid}`, directory, env);
  }

  /** Reads a document from the installed package, with the URL of this server and temporary files in this directory. */
  document(name: string): string {
    const text = readFileSync(join(this.directory, "node_modules/procwire", name), "utf8");
    return text.replaceAll(DOCUMENTED_URL, this.url).replaceAll("/tmp/procwire-", `${this.directory}/procwire-`);
  }

  /** Returns the commands of the first shell block of a document that contains `part`. */
  commands(document: string, part: string): string[] {
    const blocks = Array.from(this.document(document).matchAll(/^```sh\n([\s\S]*?)^```$/gm), ([, text = ""]) => text);
    const block = blocks.find((text) => text.includes(part));
    assert.ok(block, `${document} has no shell block with ${part}`);
    return block
      .replaceAll("\\\n", " ")
      .split("\n")
      .filter((line) => line.trim() !== "");
  }

  /** Types a command. It must succeed and show the pattern. Returns its output. */
  async type(command: string, shows = /(?:)/, window = "main"): Promise<string> {
    const { output, code } = await this.screen.run(command, window);
    assert.equal(code, 0, `\`${command}\` exited with code ${code}`);
    assert.ok(shows.test(output), `\`${command}\` did not print ${shows}`);
    return output;
  }

  /** Saves the programs of a document, runs each, and compares its output with the document. */
  async programs(document: string): Promise<number> {
    const found = [...this.document(document).matchAll(/^```ts\n([\s\S]*?)^```$(?:\n\n```text\n([\s\S]*?)^```$)?/gm)];
    for (const [index, [, code = "", prints]] of found.entries()) {
      const file = `${basename(document, ".md")}-${index + 1}.ts`;
      writeFileSync(join(this.directory, file), code);
      const output = await this.type(`node ${file}`);
      if (prints !== undefined)
        assert.equal(output, prints, `the output of ${file} differs from ${document}:\n${prints}`);
    }
    return found.length;
  }

  [Symbol.dispose](): void {
    this.screen[Symbol.dispose]();
  }
}

async function install(walk: Walk, registry: PackageRegistry): Promise<void> {
  const packed = [clientTarball(), tarball(null)];
  for (const path of packed) cpSync(path, join(walk.directory, basename(path)));
  writeFileSync(join(walk.directory, "package.json"), '{ "private": true, "type": "module" }\n');
  const settings = ["prefer-offline=true", "fund=false", "audit=false", `@procwire:registry=${registry.url}`];
  writeFileSync(join(walk.directory, ".npmrc"), `${settings.join("\n")}\n`);
  const files = packed.map((path) => `./${basename(path)}`);
  await step("install the package without scripts", () =>
    walk.type(`npm install --ignore-scripts ${files.join(" ")}`, /added \d+ packages/),
  );
  await step("find the command, its help and its version", async () => {
    await walk.type('export PATH="$PWD/node_modules/.bin:$PATH"');
    const { version } = JSON.parse(walk.document("package.json"));
    await walk.type("procwire --version", new RegExp(version.replaceAll(".", "\\.")));
    await walk.type("procwire help", /Usage: procwire COMMAND/);
  });
}

async function quickStart(walk: Walk): Promise<string> {
  const loginUrl = await step("README: start a server", async () => {
    await walk.screen.open("server");
    await walk.type('export PATH="$PWD/node_modules/.bin:$PATH"', undefined, "server");
    walk.screen.begin("procwire start", "server");
    const [, url = ""] = await walk.screen.see(/--connect (ws:\/\/127\.0\.0\.1:\d+)/, "server");
    walk.url = url;
    const [address] = await walk.screen.see(/http:\/\/127\.0\.0\.1:\d+\/\S*#token=\S+/, "server");
    return address;
  });
  const expected: [part: string, shows: RegExp][] = [
    ["uname -a", /^Linux /],
    ["tr a-z A-Z", /^HELLO$/m],
    ["stty size", /^40 100$/m],
    ["procwire logs", /^made$/m],
    ["procwire ps", /sleep 60/],
  ];
  for (const line of walk.commands("README.md", "export PROCWIRE_CONNECT"))
    await step(`README: ${line.replace(/\s+#.*/, "")}`, () =>
      walk.type(line, expected.find(([part]) => line.includes(part))?.[1]),
    );
  await step("README: the program", () => walk.programs("README.md"));
  return loginUrl;
}

async function guides(walk: Walk): Promise<void> {
  const files = readdirSync(join(walk.directory, "node_modules/procwire/examples"));
  await step("examples", async () => {
    for (const name of files.filter((file) => file.endsWith(".mjs")))
      await walk.type(`node node_modules/procwire/examples/${name} ${walk.url}`, /\w/);
  });
  for (const document of ["docs/client.md", "docs/embed.md", "docs/copy.md"])
    await step(`${document}: the programs`, () => walk.programs(document));
  await step("docs/copy.md: the commands", async () => {
    for (const command of walk.commands("docs/copy.md", "procwire cp")) await walk.type(command);
  });
  await step("docs/attach.md: the first commands", async () => {
    const expected = [/^$/, /^[a-z0-9]{12}$/m, /^ready$/m, /sleep 60/, /^$/];
    for (const [index, command] of walk.commands("docs/attach.md", "--name web").entries())
      await walk.type(command, expected[index]);
  });
  await step("docs/attach.md: attach, type, detach, watch, take over", () => attach(walk));
  await step("docs/persistent-processes.md: restart a server below its process", () => persist(walk));
  await step("README: the MCP server of the configuration", () => mcp(walk));
  await step("README: a fan-out", () => fanOut(walk));
  await step("docs/troubleshooting.md: procwire doctor", () => walk.type("procwire doctor"));
}

async function attach({ screen }: Walk): Promise<void> {
  const { code } = await screen.run("procwire run --detach --tty --name shell -- env PS1='attached> ' sh");
  assert.equal(code, 0, "procwire run --detach failed");
  screen.begin("procwire attach shell");
  await screen.see(/^attached>\s*$/m);
  screen.begin("echo $((6 * 7))");
  await screen.see(/^42$/m);
  // A viewer in another window draws the same screen, and takes over with one key.
  screen.begin("procwire attach --view shell", "server-2");
  await screen.see(/^42$/m, "server-2");
  screen.press("C-t", "server-2");
  await screen.see(/driver|viewer/);
  screen.begin("echo $((7 * 11))", "server-2");
  await screen.see(/^77$/m);
  screen.press("C-]", "server-2");
  screen.press("C-]");
  assert.equal((await screen.run("procwire kill shell")).code, 0, "procwire kill failed");
}

/** Types the commands of the page, with a socket in this directory, and kills the server. */
async function persist(walk: Walk): Promise<void> {
  const socket = join(walk.directory, "procwire.sock");
  const [serve = "", run = ""] = walk
    .commands("docs/persistent-processes.md", "serve --supervised")
    .map((command) => command.replaceAll("/run/procwire/procwire.sock", socket).replace("make -j8", "sleep 300"));
  walk.screen.begin(serve, "server-2");
  await walk.screen.see(/^unix:\/\/\S+procwire\.sock$/m, "server-2");
  const handle = (await walk.type(run)).trim();
  await walk.type(`kill -9 $(pgrep -f 'procwire.cjs serve .*${socket}')`);
  await walk.type(`procwire ps --wait 20 --connect unix://${socket}`, new RegExp(handle.slice(0, 12)));
  walk.screen.press("C-c", "server-2");
}

async function mcp(walk: Walk): Promise<void> {
  const [, json = ""] = /^```json\n([\s\S]*?)^```$/m.exec(walk.document("README.md")) ?? [];
  const { command, args } = JSON.parse(json).mcpServers.procwire as { command: string; args: string[] };
  const params = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "newcomer", version: "1" } };
  const request = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params });
  await walk.type(`echo '${request}' | ${command} ${args.join(" ")}`, /"serverInfo"/);
}

async function fanOut(walk: Walk): Promise<void> {
  const mock = await startMockResponses((request) => report(request));
  try {
    writeFileSync(join(walk.directory, "cities.csv"), "name\nParis\nLima\n");
    const [key = "", fanout = ""] = walk.commands("README.md", "procwire fanout");
    await walk.type(`export OPENAI_BASE_URL=${mock.url}; ${key.replace("…", "a-key")}`);
    await walk.type(fanout);
    assert.match(readFileSync(join(walk.directory, "out.csv"), "utf8"), /Paris.*\n.*Lima/);
  } finally {
    await mock.close();
  }
}

async function webConsole(walk: Walk, loginUrl: string): Promise<void> {
  await using opened = await openBrowser();
  const { page, problems } = await signedIn(opened.browser, loginUrl);
  await step("docs/console.md: start a process in the browser, and find it in the terminal", async () => {
    const handle = await startOnPage(page, "echo it''works; sleep 100");
    await until("the output in the browser", async () => /^itworks$/m.test(await screenText(page)));
    await walk.type("procwire ps", /sleep 100/);
    await walk.type(`procwire kill ${handle}`);
  });
  await step("docs/console.md: find a process of the terminal in the browser", async () => {
    const handle = (await walk.type("procwire run --detach -- sleep 200")).trim();
    await sectionLink(page, "Processes").click();
    await page.getByText("sleep 200").first().waitFor();
    await walk.type(`procwire kill ${handle}`);
  });
  assert.deepEqual(problems, []);
}

/** Types the commands of the page. `build.example` is this host, so `cp` replaces `scp`. */
async function remoteAccess(walk: Walk): Promise<void> {
  const port = String(await freePort());
  const commands = (part: string) =>
    walk.commands("docs/remote-access.md", part).map((command) => command.replaceAll("7443", port));
  await step("docs/remote-access.md: token, certificate, server", async () => {
    for (const command of [...commands("openssl rand"), ...commands("openssl req")]) await walk.type(command);
    walk.screen.begin(commands("procwire serve").join("\n"), "server-2");
    await walk.screen.see(/wss:\/\/0\.0\.0\.0:\d+/, "server-2");
  });
  const loginUrl = await step("docs/remote-access.md: connect by name", async () => {
    await walk.type(`export NODE_OPTIONS=--import=${EXAMPLE_HOSTS}`);
    const [copy = "", run = "", ps = ""] = commands("scp");
    assert.match(copy, /^scp build\.example:secrets\/token build\.example:cert\.pem \.$/);
    await walk.type("cp secrets/token .");
    await walk.type(run, /^Linux /);
    await walk.type(ps, /HANDLE|NAME/);
    const [login = ""] = commands("procwire console");
    const url = (await walk.type(login, /^https:/)).trim();
    await walk.type("unset NODE_OPTIONS");
    return url;
  });
  await step("docs/remote-access.md: the console of another machine", async () => {
    await using opened = await openBrowser(
      "--host-resolver-rules=MAP build.example 127.0.0.1",
      "--ignore-certificate-errors",
    );
    const { page } = await signedIn(opened.browser, loginUrl);
    await startOnPage(page, "echo it''works; sleep 100");
    await until("the output in the browser", async () => /^itworks$/m.test(await screenText(page)));
  });
  walk.screen.press("C-c", "server-2");
}

async function walkThrough(walk: Walk, registry: PackageRegistry): Promise<void> {
  await install(walk, registry);
  const loginUrl = await quickStart(walk);
  await walk.screen.open("server-2");
  await walk.type('export PATH="$PWD/node_modules/.bin:$PATH"', undefined, "server-2");
  await walk.type(`export PROCWIRE_CONNECT=${walk.url}`, undefined, "server-2");
  await guides(walk);
  await webConsole(walk, loginUrl);
  await remoteAccess(walk);
  await step("stop the server with Ctrl-C", async () => {
    walk.screen.press("C-c", "server");
    await walk.type("true", undefined, "server");
  });
}

if (!existsSync(tarball(null))) throw new Error(`${tarball(null)} is missing; run \`npm run pack:all\` first`);
const directory = mkdtempSync(join(tmpdir(), "procwire-newcomer-"));
const env = {
  PATH: `${dirname(process.execPath)}:/usr/local/bin:/usr/bin:/bin`,
  HOME: directory,
  LANG: "C.UTF-8",
  npm_config_userconfig: process.env.npm_config_userconfig ?? `${process.env.HOME}/.npmrc`,
  npm_config_cache: process.env.npm_config_cache ?? `${process.env.HOME}/.npm`,
  // npm needs the certificate authority of a proxy, if this host has one.
  NODE_EXTRA_CA_CERTS: process.env.NODE_EXTRA_CA_CERTS ?? "",
};
try {
  await using registry = await PackageRegistry.open();
  using walk = new Walk(directory, env);
  try {
    await walkThrough(walk, registry);
  } catch (error) {
    console.error(
      `FAILED  ${currentStep}\n${error instanceof Error ? error.message : error}\n\n${walk.screen.showAll()}`,
    );
    process.exitCode = 1;
  }
} finally {
  rmSync(directory, { recursive: true, force: true, maxRetries: 10 });
}
