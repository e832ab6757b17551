/** Runs in a new network and mount namespace: the services of a `TestNetwork`, until the end of stdin. */

import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { connect, createServer as createTcpServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, normalize } from "node:path";
import { pipeline } from "node:stream";
import { startDns } from "./dns-server.ts";
import type { TestNetworkOptions, TestServer } from "./test-network.ts";

const { names, servers, files = {}, forwards = {} }: TestNetworkOptions = JSON.parse(process.argv[2] ?? "");
const directory = mkdtempSync(join(tmpdir(), "procwire-network-"));
const report = (event: unknown) => process.stdout.write(`${JSON.stringify(event)}\n`);

const mounted: string[] = [];

function mount(source: string, path: string): void {
  execFileSync("mount", ["--bind", source, path]);
  mounted.unshift(path);
}

/** Replaces the nearest existing parent of a missing file by a copy, so that the host stays unchanged. */
function makePlace(path: string): void {
  let parent = dirname(path);
  while (!existsSync(parent)) parent = dirname(parent);
  const copy = mkdtempSync(join(directory, "copy-"));
  execFileSync("cp", ["-a", `${parent}/.`, copy]);
  mount(copy, parent);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, "");
}

function replaceFile(path: string, text: string): void {
  const file = join(directory, path.replaceAll("/", "_"));
  writeFileSync(file, text);
  mount(file, path);
}

async function startServer({ address, port, redirects = {}, root, authorizations, tls }: TestServer): Promise<void> {
  const serve = (request: IncomingMessage, response: ServerResponse) => {
    const { method, url = "", headers } = request;
    report({ request: `${address}:${port} ${method} ${url} ${headers.host}` });
    const path = new URL(url, "http://x").pathname;
    const location = redirects[path];
    request.resume().on("end", () => {
      const { authorization = "" } = headers;
      if (authorizations !== undefined) response.setHeader("x-authorization", authorization);
      if (authorizations?.includes(authorization) === false) response.writeHead(401).end();
      else if (location !== undefined) response.writeHead(302, { location }).end();
      else if (root === undefined) response.end(`from ${address}:${port}\n`);
      else {
        const content = readOrNull(join(root, normalize(decodeURIComponent(path))));
        const type = path.endsWith("/") ? "text/html" : "application/octet-stream";
        if (content) response.writeHead(200, { "content-type": type }).end(content);
        else response.writeHead(404).end();
      }
    });
  };
  const server = tls ? createTlsServer(tls, serve) : createServer(serve);
  server.listen(port, address);
  await once(server, "listening");
}

function readOrNull(path: string): Buffer | null {
  try {
    return readFileSync(path.endsWith("/") ? `${path}index.html` : path);
  } catch {
    return null;
  }
}

execFileSync("ip", ["link", "set", "lo", "up"]);
for (const address of new Set(servers.map((server) => server.address)))
  if (!address.startsWith("127.")) execFileSync("ip", ["addr", "add", `${address}/32`, "dev", "lo"]);
// A copied directory must not hide the files that follow.
for (const path of Object.keys(files)) if (!existsSync(path)) makePlace(path);
replaceFile("/etc/resolv.conf", "nameserver 127.0.0.53\noptions timeout:1 attempts:1\n");
for (const [path, text] of Object.entries({ "/etc/hosts": "127.0.0.1 localhost\n", ...files })) replaceFile(path, text);
await startDns(names, (query) => report({ query }));
await Promise.all(servers.map(startServer));
for (const [port, socketPath] of Object.entries(forwards)) {
  const server = createTcpServer((socket) => {
    const target = connect(socketPath);
    pipeline(socket, target, socket, () => undefined);
  }).listen(Number(port), "127.0.0.1");
  await once(server, "listening");
}
report({});
process.stdin.resume().on("end", () => {
  // A directory with a mounted file cannot be removed.
  for (const path of mounted) execFileSync("umount", ["--lazy", path]);
  rmSync(directory, { recursive: true, force: true });
  process.exit();
});
