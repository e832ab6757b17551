import { once } from "node:events";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { WebSocketServer } from "ws";

/** A node of the tree that the server claims to have. The server sends names unchanged. */
export type ClaimedNode =
  | { type: "file"; content: string }
  | { type: "symlink"; target: string }
  | { type: "directory"; entries: [name: string, node: ClaimedNode][] };

export const file = (content: string): ClaimedNode => ({ type: "file", content });
export const symlink = (target: string): ClaimedNode => ({ type: "symlink", target });
export const directory = (...entries: [string, ClaimedNode][]): ClaimedNode => ({
  type: "directory",
  entries,
});

/** Entries of one `fs/scan` page, so that a duplicate can be on the next page. */
const PAGE_ENTRIES = 2;

/** Content of every file of the server, for every path. */
export const PLANTED = "planted by the server";

/** Starts a server that claims to have `/data`, speaks the protocol and checks nothing. Returns its URL. */
export async function hostileFileServer(t: TestContext, root: () => ClaimedNode): Promise<string> {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  t.after(() => {
    for (const client of server.clients) client.terminate();
    server.close();
  });
  server.on("connection", (socket) => {
    socket.on("message", (data) => {
      const { id, method, params } = JSON.parse(String(data)) as {
        id?: number;
        method: string;
        params?: { path?: string; after?: string };
      };
      if (id === undefined) return;
      const path = decodeURIComponent((params?.path ?? "").replace("file://", ""));
      socket.send(JSON.stringify({ id, ...answer(method, path, params?.after, root()) }));
    });
  });
  await once(server, "listening");
  return `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function answer(method: string, path: string, after: string | undefined, root: ClaimedNode): object {
  const node = path === "/data" ? root : nodeBelow(root, path);
  switch (method) {
    case "initialize":
      return { result: { sessionId: "s", extensions: [] } };
    case "fs/getMetadata":
      return {
        result: {
          isDirectory: node.type === "directory",
          isFile: node.type === "file",
          isSymlink: false,
          size: 0,
          createdAtMs: 0,
          modifiedAtMs: 0,
        },
      };
    case "fs/scan":
      return { result: scan(node, after) };
    case "fs/readFile":
      return { result: { dataBase64: Buffer.from(PLANTED).toString("base64") } };
    default:
      return { error: { code: -32601, message: `no ${method}` } };
  }
}

function scan(node: ClaimedNode, after: string | undefined): object {
  const all = node.type === "directory" ? node.entries : [];
  // A client requests the next page with the last name of a page. The first entry of a duplicate name counts.
  const from = after === undefined ? 0 : all.findIndex(([name]) => name === after) + 1;
  const page = all.slice(from, from + PAGE_ENTRIES);
  return {
    self: entry("", node),
    entries: page.map(([name, child]) => entry(name, child)),
    more: from + page.length < all.length,
  };
}

function entry(name: string, node: ClaimedNode): object {
  return {
    name,
    type: node.type,
    size: node.type === "file" ? node.content.length : 0,
    mode: node.type === "directory" ? 0o755 : 0o644,
    modifiedAtMs: 1_600_000_000_000,
    ...(node.type === "symlink" ? { target: node.target } : {}),
  };
}

/** Returns the node at a path; the last of two entries with one name. A path without a node is a file. */
function nodeBelow(root: ClaimedNode, path: string): ClaimedNode {
  let node = root;
  for (const wanted of path.replace(/^\/data\//, "").split("/")) {
    if (node.type !== "directory") return file(PLANTED);
    const found = node.entries.findLast(([name]) => name === wanted || decodeURIComponent(name) === wanted);
    node = found?.[1] ?? file(PLANTED);
  }
  return node;
}
