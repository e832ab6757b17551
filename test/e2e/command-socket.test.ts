import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { ConnectionState, ExecServerClient } from "../../src/client/exec-server-client.ts";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import type { ByteCodec } from "../../src/connection/byte-codec.ts";
import type { FrameSocket } from "../../src/connection/frame-socket.ts";
import { lazyNativeCodec } from "../../src/host/client-codec.ts";
import { scratchDirectory } from "../support/servers/serve.ts";
import { UserServerDirectory } from "../support/servers/user-server.ts";
import { openDescriptors } from "../support/system/process-stats.ts";
import { until } from "../support/system/until.ts";

const CAT = { processId: "cat", argv: ["cat"], cwd: "/", env: { PATH: "/usr/bin:/bin" }, tty: false, pipeStdin: true };
/** Around the sizes at which the addon changes how it receives a message, and the maximum of the protocol. */
const BLOCK_SIZES = [1, 65_535, 65_536, 262_144 - 200, 262_144, 262_145, 1_048_575, 1_048_576];

/** The codec of the command line, and the sockets that it opened. */
function recordingCodec(): { codec: ByteCodec; sockets: (FrameSocket | null)[] } {
  const codec = lazyNativeCodec();
  const sockets: (FrameSocket | null)[] = [];
  return {
    codec: {
      ...codec,
      openCommandSocket: (...args) => {
        const socket = codec.openCommandSocket?.(...args) ?? null;
        sockets.push(socket);
        return socket;
      },
    },
    sockets,
  };
}

async function connect(
  url: string,
  options: { onConnectionState?: (state: ConnectionState) => void; reconnect?: false } = {},
): Promise<ExecServerClient> {
  const { codec, sockets } = recordingCodec();
  const client = await NodeExecServerClient.connectWebSocket({ url, codec, ...options });
  assert.ok(sockets.length === 1 && sockets[0] !== null, "the addon must serve the connection");
  return client;
}

describe("a client on the stdio of a command, served by the addon", { timeout: 600_000 }, () => {
  test("transfers file blocks of all sizes unchanged, in both directions", async () => {
    await using place = new UserServerDirectory();
    using scratch = scratchDirectory();
    await using client = await connect(place.url());
    const bytes = randomBytes(BLOCK_SIZES.reduce((sum, size) => sum + size, 0));
    const path = join(scratch.path, "file");
    await using file = await client.files.open(path, "replace");
    // All blocks are in flight at once, so that frames share reads.
    await Promise.all(blocks().map(([offset, size]) => file.write(offset, bytes.subarray(offset, offset + size))));
    assert.ok(readFileSync(path).equals(bytes));
    await using source = await client.files.open(path);
    const read = await Promise.all(blocks().map(([offset, size]) => source.read(offset, size)));
    assert.ok(Buffer.concat(read.map(({ chunk }) => chunk)).equals(bytes));
  });

  test("transfers input, output and other text", async () => {
    await using place = new UserServerDirectory();
    await using client = await connect(place.url());
    await using process = await client.start(CAT);
    // Each line has 11 UTF-16 units, so that no write splits a character.
    const sent = "ÄÖ€😀 text\n".repeat(20_000);
    const echoed: Uint8Array[] = [];
    const echo = (async () => {
      for await (const event of process.events({ lossless: true })) {
        if (event.type === "output") echoed.push(event.chunk);
      }
    })();
    for (let at = 0; at < sent.length; at += 11_000) await process.write(sent.slice(at, at + 11_000));
    await process.closeStdin();
    await echo;
    assert.equal(Buffer.concat(echoed).toString(), sent);
  });

  test("reports the failure of the command as the reason of the lost connection", async () => {
    await using place = new UserServerDirectory();
    const script = join(place.directory, "wrapper");
    // Like ssh: the command outlives the bridge, prints a reason and exits with 255.
    const bridge = place.url().slice("exec:".length).replace(" exec ", " ");
    writeFileSync(script, `#!/bin/sh\n${bridge}\necho 'connection reset by test' >&2\nexit 255\n`, {
      mode: 0o755,
    });
    const states: ConnectionState[] = [];
    const client = await connect(`exec:exec '${script}'`, {
      onConnectionState: (state) => states.push(state),
      reconnect: false,
    });
    const [server] = place.serverPids().slice(-1);
    process.kill(server ?? assert.fail("no server"), "SIGKILL");
    await until("the client is disconnected", () => states.at(-1)?.type === "disconnected");
    const last = states.at(-1);
    assert.match(last?.type === "disconnected" ? last.error.message : "", /connection reset by test/);
    await client.close();
  });

  test("reconnects after a lost connection, and leaves no descriptor open", async () => {
    await using place = new UserServerDirectory();
    const pidFile = join(place.directory, "pid");
    const { codec, sockets } = recordingCodec();
    const before = openDescriptors(process.pid).length;
    const client = await NodeExecServerClient.connectWebSocket({
      url: place.url(`echo $$ > '${pidFile}';`),
      codec,
      reconnect: { firstDelayMs: 5, maxDelayMs: 20 },
    });
    for (let losses = 1; losses <= 3; losses++) {
      process.kill(Number(readFileSync(pidFile, "utf8")), "SIGKILL");
      await until(`connection ${losses + 1}`, () => sockets.length === losses + 1);
      assert.equal((await client.call("process/list", {})).processes.length, 0);
    }
    assert.ok(sockets.every((socket) => socket !== null));
    await client.close();
    await until("all descriptors are closed", () => openDescriptors(process.pid).length <= before);
  });
});

/** Returns offset and size of each block. */
function blocks(): [number, number][] {
  let offset = 0;
  return BLOCK_SIZES.map((size) => {
    offset += size;
    return [offset - size, size];
  });
}
