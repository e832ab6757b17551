import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { missing, SOCKET_KINDS, serveOn } from "../../support/servers/sockets.ts";

describe("listen()", () => {
  for (const kind of SOCKET_KINDS) {
    test(`uses the sockets that the host provides: ${kind}`, { skip: missing(kind) }, async () => {
      const before = listeners();
      const server = await serveOn(kind);
      // Only Node's own sockets are known to Node.
      assert.equal(listeners() - before, kind === "Node's sockets" ? 1 : 0);
      await server.close();
    });
  }
});

const listeners = () => process.getActiveResourcesInfo().filter((name) => name === "TCPServerWrap").length;
