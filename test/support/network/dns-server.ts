import { createSocket } from "node:dgram";
import { once } from "node:events";

const RECORD_TYPES = { A: 1, AAAA: 28 } as const;

/** Successive addresses of a name; the last answer repeats. A name without answers gets no response. */
export type DnsAnswers = Readonly<Record<string, readonly (readonly string[])[]>>;

/** Answers DNS queries for A and AAAA records at 127.0.0.53. Other names do not exist. `onQuery` gets `A name`. */
export async function startDns(answers: DnsAnswers, onQuery: (query: string) => void): Promise<void> {
  const asked = new Map<string, number>();
  const socket = createSocket("udp4");
  socket.on("message", (query, { port, address }) => {
    const labels: string[] = [];
    let at = 12;
    for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
      labels.push(query.toString("latin1", at + 1, at + 1 + length));
      at += 1 + length;
    }
    const name = labels.join(".");
    const type = query.readUInt16BE(at + 1) === RECORD_TYPES.A ? "A" : "AAAA";
    const key = `${type} ${name}`;
    onQuery(key);
    const count = asked.get(key) ?? 0;
    asked.set(key, count + 1);
    const found = answers[name] ?? [];
    if (name in answers && found.length === 0) return;
    const addresses = (found[Math.min(count, found.length - 1)] ?? []).filter(
      (one) => one.includes(":") === (type === "AAAA"),
    );
    const head = Buffer.from(query.subarray(0, at + 5));
    head.writeUInt16BE(name in answers ? 0x8580 : 0x8583, 2);
    head.writeUInt16BE(1, 4);
    head.writeUInt16BE(addresses.length, 6);
    head.writeUInt32BE(0, 8);
    const records = addresses.flatMap((one) => {
      const data = type === "A" ? one.split(".").map(Number) : ipv6Bytes(one);
      return [0xc0, 12, 0, RECORD_TYPES[type], 0, 1, 0, 0, 0, 0, 0, data.length, ...data];
    });
    socket.send(Buffer.concat([head, Buffer.from(records)]), port, address);
  });
  socket.bind(53, "127.0.0.53");
  await once(socket, "listening");
}

function ipv6Bytes(address: string): number[] {
  const [head = "", tail = ""] = address.split("::");
  const parse = (text: string) => (text === "" ? [] : text.split(":").map((group) => Number.parseInt(group, 16)));
  const [before, after] = [parse(head), parse(tail)];
  const groups = [...before, ...Array.from({ length: 8 - before.length - after.length }, () => 0), ...after];
  return groups.flatMap((group) => [group >> 8, group & 255]);
}
