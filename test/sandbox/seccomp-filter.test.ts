import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type SeccompArch, seccompArchFor, seccompFilter } from "../../src/sandbox/seccomp-filter.ts";

interface Call {
  number: number;
  arch: number;
  args?: bigint[];
}

const ALLOW = "allow";

/** Interprets the BPF instructions that the filter uses; fails on other instructions. */
function evaluate(program: Uint8Array, { number, arch, args = [] }: Call): string {
  assert.equal(program.length % 8, 0);
  const data = new DataView(new ArrayBuffer(64));
  data.setUint32(0, number >>> 0, true);
  data.setUint32(4, arch >>> 0, true);
  for (const [index, value] of args.entries()) data.setBigUint64(16 + index * 8, value, true);
  const view = new DataView(program.buffer, program.byteOffset, program.length);
  let accumulator = 0;
  for (let at = 0; at * 8 < program.length; at++) {
    const code = view.getUint16(at * 8, true);
    const value = view.getUint32(at * 8 + 4, true);
    const jump = (condition: boolean) => view.getUint8(at * 8 + (condition ? 2 : 3));
    if (code === 0x20) accumulator = data.getUint32(value, true);
    else if (code === 0x54) accumulator = (accumulator & value) >>> 0;
    else if (code === 0x15) at += jump(accumulator === value);
    else if (code === 0x35) at += jump(accumulator >= value);
    else if (code === 0x45) at += jump((accumulator & value) !== 0);
    else if (code === 0x06) {
      if (value === 0x7fff0000) return ALLOW;
      if (value === 0x80000000) return "kill";
      assert.equal(value >>> 16, 5, "an errno");
      return { 1: "EPERM", 38: "ENOSYS" }[value & 0xffff] ?? `errno ${value & 0xffff}`;
    } else assert.fail(`unexpected instruction ${code}`);
  }
  assert.fail("the program does not return");
}

const ARCHES: Record<
  SeccompArch,
  {
    audit: number;
    socket: number;
    socketpair: number;
    clone: number;
    unshare: number;
    ioctl: number;
    ptrace: number;
    read: number;
  }
> = {
  x64: {
    audit: 0xc000003e,
    socket: 41,
    socketpair: 53,
    clone: 56,
    unshare: 272,
    ioctl: 16,
    ptrace: 101,
    read: 0,
  },
  arm64: {
    audit: 0xc00000b7,
    socket: 198,
    socketpair: 199,
    clone: 220,
    unshare: 97,
    ioctl: 29,
    ptrace: 117,
    read: 63,
  },
};

for (const arch of ["x64", "arm64"] as const) {
  const calls = ARCHES[arch];
  const on = seccompFilter({ network: true, arch });
  const off = seccompFilter({ network: false, arch });
  const managed = seccompFilter({ network: false, isManaged: true, arch });
  const evaluateCall = (program: Uint8Array, number: number, ...args: bigint[]) =>
    evaluate(program, { number, arch: calls.audit, args });

  test(`${arch}: allows only namespaced socket families without network access`, () => {
    for (const family of [2n, 10n, 16n]) assert.equal(evaluateCall(off, calls.socket, family), ALLOW);
    for (const family of [1n, 0n, 17n, 38n, 40n, 42n]) assert.equal(evaluateCall(off, calls.socket, family), "EPERM");
    for (const family of [1n, 2n, 40n]) assert.equal(evaluateCall(on, calls.socket, family), ALLOW);
    // The kernel reads an int and ignores the upper half.
    assert.equal(evaluateCall(off, calls.socket, 0x1_0000_0001n), "EPERM");
  });

  test(`${arch}: allows only TCP and UDP sockets and connected pairs in a managed network`, () => {
    for (const flags of [0n, 0x800n, 0x80800n]) {
      for (const family of [2n, 10n]) {
        for (const type of [1n, 2n]) assert.equal(evaluateCall(managed, calls.socket, family, type | flags), ALLOW);
        // SOCK_RAW, SOCK_RDM, SOCK_SEQPACKET, SOCK_PACKET.
        for (const type of [3n, 4n, 5n, 10n])
          assert.equal(evaluateCall(managed, calls.socket, family, type | flags), "EPERM", `${type}`);
      }
      for (const family of [0n, 1n, 16n, 17n, 38n, 40n, 42n, 0x1_0000_0001n])
        assert.equal(evaluateCall(managed, calls.socket, family, 1n | flags), "EPERM", `${family}`);
      assert.equal(evaluateCall(managed, calls.socketpair, 1n, 1n | flags), ALLOW);
      assert.equal(evaluateCall(managed, calls.socketpair, 1n, 2n | flags), "EPERM");
    }
    assert.equal(evaluateCall(managed, calls.read), ALLOW);
  });

  test(`${arch}: allows only pairs of connected Unix sockets without network access`, () => {
    const [stream, datagram, raw, seqpacket] = [1n, 2n, 3n, 5n];
    const flags = [0n, 0x800n, 0x80000n, 0x80800n];
    for (const flag of flags) {
      for (const type of [stream, seqpacket])
        assert.equal(evaluateCall(off, calls.socketpair, 1n, type | flag), ALLOW, `${type}`);
      for (const type of [datagram, raw, 0n, 4n, 10n])
        assert.equal(evaluateCall(off, calls.socketpair, 1n, type | flag), "EPERM", `${type}`);
      assert.equal(evaluateCall(on, calls.socketpair, 1n, datagram | flag), ALLOW);
    }
    // The kernel reads two ints and ignores the upper halves.
    assert.equal(evaluateCall(off, calls.socketpair, 0x1_0000_0001n, 0x1_0000_0002n), "EPERM");
    // AF_TIPC has pairs too.
    for (const family of [0n, 2n, 30n, 40n]) assert.equal(evaluateCall(off, calls.socketpair, family, stream), "EPERM");
  });

  test(`${arch}: denies every way to create a user namespace`, () => {
    for (const program of [on, off]) {
      for (const number of [calls.clone, calls.unshare]) {
        assert.equal(evaluateCall(program, number, 0x10000000n), "EPERM");
        assert.equal(evaluateCall(program, number, 0x10000000n | 0x11n | 0x20000000n), "EPERM");
        assert.equal(evaluateCall(program, number, 0x11n), ALLOW);
      }
      assert.equal(evaluateCall(program, 435), "ENOSYS");
    }
  });

  test(`${arch}: denies terminal input injection and ignores the upper half of the request`, () => {
    for (const request of [0x5412n, 0xffffffff_00005412n, 0x541cn])
      assert.equal(evaluateCall(on, calls.ioctl, 0n, request), "EPERM");
    assert.equal(evaluateCall(on, calls.ioctl, 0n, 0x5413n), ALLOW);
  });

  test(`${arch}: denies access to other processes, io_uring and keys`, () => {
    for (const number of [calls.ptrace, 425, 426, 427, 438]) assert.equal(evaluateCall(on, number), "EPERM");
  });

  test(`${arch}: kills a process that uses calls of another architecture`, () => {
    for (const audit of [0x40000003, 0x40000028, arch === "x64" ? 0xc00000b7 : 0xc000003e])
      assert.equal(evaluate(on, { number: calls.read, arch: audit }), "kill");
    if (arch === "x64") {
      assert.equal(evaluateCall(on, 0x40000000), "EPERM");
      assert.equal(evaluateCall(on, 0xffffffff), "EPERM");
    }
  });

  test(`${arch}: allows every other call with any arguments`, () => {
    const denied = new Set([calls.socket, calls.socketpair, calls.clone, calls.unshare, calls.ioctl]);
    fc.assert(
      fc.property(
        fc.nat(600),
        fc.array(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), { maxLength: 6 }),
        (number, args) => {
          if (denied.has(number)) return;
          // The result depends on the call number alone.
          assert.equal(evaluateCall(off, number, ...args), evaluateCall(off, number));
          assert.equal(evaluateCall(off, number), evaluateCall(on, number));
        },
      ),
    );
    assert.equal(evaluateCall(off, calls.read), ALLOW);
  });
}

test("an architecture without a table has no seccomp filter", () => {
  assert.deepEqual([seccompArchFor("x64"), seccompArchFor("arm64"), seccompArchFor("riscv64")], ["x64", "arm64", null]);
});
