import { RawPeer } from "./raw-peer.ts";

const MIB = 1024 * 1024;

/** An attack of a peer on a server. Runs in a separate thread, so that it does not disturb the measuring thread. */
export interface Attack {
  name: string;
  /** Name of the attack in the results table. */
  label: string;
  /** Additional flags of the procwire server; the Codex server has no such flags. */
  ourFlags?: string[];
  run(url: string, scratch: string): Promise<void>;
}

export const attacks: Attack[] = [
  {
    name: "pings",
    label: "436 MB of pings by a client that does not read",
    async run(url) {
      const peer = await RawPeer.connect(url);
      peer.stopReading();
      const payload = Buffer.alloc(109, "p");
      for (let sent = 0; sent < 436e6; sent += 1000 * payload.length) {
        if (!(await peer.pings(payload, 1000))) break;
      }
      await waitForServer();
    },
  },
  {
    name: "files",
    label: "12 `fs/readFile` of 60 MB by a client that does not read",
    async run(url, scratch) {
      const peer = await initialized(url);
      peer.stopReading();
      for (let n = 0; n < 12; n++) await peer.request("fs/readFile", { path: `file://${scratch}/60mb` });
      await waitForServer();
    },
  },
  {
    name: "big-file",
    label: "a file of 380 MiB read",
    async run(url, scratch) {
      const peer = await initialized(url);
      await peer.request("fs/readFile", { path: `file://${scratch}/380mib` });
      await waitForServer();
    },
  },
  {
    name: "retained",
    label: "150 ended processes with 3 MB of output each, retention 64 KiB",
    ourFlags: ["--retained-output-bytes", "65536"],
    async run(url) {
      const peer = await initialized(url);
      for (let n = 0; n < 150; n++) await start(peer, `p${n}`, "head -c 3000000 /dev/zero");
      await waitForServer();
    },
  },
  {
    name: "outputs",
    label: "800 processes with 6 MB of output each",
    async run(url) {
      const peer = await initialized(url);
      // The peer stops answering a client that sends 800 at once.
      for (let n = 0; n < 800; n += 20)
        await Promise.all(Array.from({ length: 20 }, (_, k) => start(peer, `p${n + k}`, "head -c 6000000 /dev/zero")));
      await waitForServer(15_000);
    },
  },
  {
    name: "write-ids",
    label: "800 writes with ids of 500 KB",
    async run(url) {
      const peer = await initialized(url);
      await start(peer, "cat", "cat >/dev/null", { pipeStdin: true });
      for (let n = 0; n < 800; n++) {
        const writeId = `${n}-`.padEnd(500_000, "w");
        if (!(await peer.request("process/write", { processId: "cat", writeId, chunk: "YQ==" }))) break;
      }
      await waitForServer();
    },
  },
  {
    name: "answers",
    label: "500 writes with request ids of 1 MB by a client that does not read",
    async run(url) {
      const peer = await initialized(url);
      await start(peer, "cat", "cat >/dev/null", { pipeStdin: true });
      peer.stopReading();
      for (let n = 0; n < 500; n++) {
        const params = { processId: "cat", writeId: `w${n}`, chunk: "YQ==" };
        if (!(await peer.request("process/write", params, `${n}-`.padEnd(1_000_000, "i")))) break;
      }
      await waitForServer();
    },
  },
  {
    name: "reads",
    label: "10,000 unread `process/read` of 1 MiB, then the client disconnects",
    async run(url) {
      const peer = await initialized(url);
      await start(peer, "p", "head -c 1000000 /dev/zero; sleep 60");
      await waitForServer(500);
      peer.stopReading();
      for (let n = 0; n < 10_000; n++) {
        const params = { processId: "p", afterSeq: 0, maxBytes: MIB, waitMs: 0 };
        if (!(await peer.request("process/read", params))) break;
      }
      peer.disconnect();
      await waitForServer();
    },
  },
  {
    name: "dead-reads",
    label: "the same by four clients at once, while four others receive bulk output",
    async run(url) {
      // These connections read everything, so their processes never pause.
      const busy = await Promise.all(Array.from({ length: 4 }, () => initialized(url)));
      await Promise.all(busy.map((peer) => start(peer, "flood", "cat /dev/zero")));
      await Promise.all(
        Array.from({ length: 4 }, async () => {
          const peer = await initialized(url);
          await start(peer, "p", "head -c 1000000 /dev/zero; sleep 60");
          await waitForServer(500);
          peer.stopReading();
          const params = { processId: "p", afterSeq: 0, maxBytes: MIB, waitMs: 0 };
          for (let n = 0; n < 10_000; n++) if (!(await peer.request("process/read", params))) break;
          peer.disconnect();
        }),
      );
      await waitForServer(8_000);
    },
  },
  {
    name: "load",
    label: "no attack: 500 connections with 4 processes each, 200,000 echoes, 40 s without connections",
    async run(url) {
      const peers: RawPeer[] = [];
      for (let n = 0; n < 500; n++) peers.push(await initialized(url));
      const names = ["a", "b", "c", "d"];
      for (let n = 0; n < peers.length; n += 20)
        await Promise.all(
          peers.slice(n, n + 20).flatMap((peer) => names.map((name) => start(peer, name, "cat", { pipeStdin: true }))),
        );
      const chunk = Buffer.alloc(64, "e").toString("base64");
      for (let round = 0; round < 100; round++)
        await Promise.all(
          peers.flatMap((peer) =>
            names.map((processId) => peer.call("process/write", { processId, writeId: `${processId}${round}`, chunk })),
          ),
        );
      for (const peer of peers) peer.disconnect();
      // Sessions and their processes live until the session TTL elapses.
      await waitForServer(40_000);
    },
  },
  {
    name: "floods",
    label: "20 clients that do not read, each with 10 processes of bulk output",
    async run(url) {
      for (let n = 0; n < 20; n++) {
        const peer = await initialized(url);
        for (let p = 0; p < 10; p++) await start(peer, `p${p}`, "cat /dev/zero");
        peer.stopReading();
      }
      await waitForServer(10_000);
    },
  },
  {
    name: "messages",
    label: "20 messages of 64 MB at once",
    async run(url) {
      const chunk = "A".repeat(63 * 1000 * 1000);
      const text = JSON.stringify({ id: 1, method: "process/write", params: { processId: "none", chunk } });
      const peers = await Promise.all(Array.from({ length: 20 }, () => initialized(url)));
      await Promise.all(peers.map((peer) => peer.send(text)));
      await waitForServer(10_000);
    },
  },
  {
    name: "keys",
    label: "a message of 60 MB of keys",
    async run(url) {
      const peer = await initialized(url);
      const keys: string[] = [];
      for (let bytes = 0, n = 0; bytes < 60e6; n++) {
        keys.push(`"k${n}":${n}`);
        bytes += keys[n]?.length ?? 0;
      }
      await peer.send(`{"id":1,"method":"environment/status","params":{${keys.join(",")}}}`);
      await waitForServer();
    },
  },
];

async function initialized(url: string): Promise<RawPeer> {
  const peer = await RawPeer.connect(url);
  await peer.initialize();
  return peer;
}

function start(peer: RawPeer, processId: string, script: string, more: object = {}): Promise<boolean> {
  return peer.call("process/start", {
    processId,
    argv: ["/bin/sh", "-c", script],
    cwd: "file:///tmp",
    env: { PATH: "/usr/bin:/bin" },
    tty: false,
    ...more,
  });
}

/** Leaves the server time to handle the requests; the attacker's connections stay open meanwhile. */
function waitForServer(ms = 4_000): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
