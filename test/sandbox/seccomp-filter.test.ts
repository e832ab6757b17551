import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type FilterArch, filterArch, seccompFilter } from "../../src/sandbox/seccomp-filter.ts";

interface Call {
  number: number;
  arch: number;
  args?: bigint[];
}

const ALLOW = "allow";

/** The kernel's BPF interpreter, as far as the filter uses it; fails on a program that the kernel would not load. */
function judge(program: Uint8Array, { number, arch, args = [] }: Call): string {
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
    else if (code === 0x15) at += jump(accumulator === value);
    else if (code === 0x35) at += jump(accumulator >= value);
    else if (code === 0x45) at += jump((accumulator & value) !== 0);
    else if (code === 0x06) {
      if (value === 0x7fff0000) return ALLOW;
      if (value === 0x80000000) return "kill";
      assert.equal(value >>> 16, 5, "an errno");
      return { 1: "EPERM", 38: "ENOSYS" }[value & 0xffff] ?? `errno ${value & 0xffff}`;
    } else assert.fail(`an instruction ${code} that no filter has`);
  }
  assert.fail("the program has no end");
}

const ARCHES: Record<
  FilterArch,
  {
    audit: number;
    socket: number;
    clone: number;
    unshare: number;
    ioctl: number;
    ptrace: number;
    read: number;
  }
> = {
  x64: { audit: 0xc000003e, socket: 41, clone: 56, unshare: 272, ioctl: 16, ptrace: 101, read: 0 },
  arm64: { audit: 0xc00000b7, socket: 198, clone: 220, unshare: 97, ioctl: 29, ptrace: 117, read: 63 },
};

for (const arch of ["x64", "arm64"] as const) {
  const calls = ARCHES[arch];
  const on = seccompFilter({ network: true, arch });
  const off = seccompFilter({ network: false, arch });
  const ask = (program: Uint8Array, number: number, ...args: bigint[]) =>
    judge(program, { number, arch: calls.audit, args });

  test(`${arch}: with the network off only families that a namespace holds can be had`, () => {
    for (const family of [2n, 10n, 16n]) assert.equal(ask(off, calls.socket, family), ALLOW);
    for (const family of [1n, 0n, 17n, 38n, 40n, 42n]) assert.equal(ask(off, calls.socket, family), "EPERM");
    for (const family of [1n, 2n, 40n]) assert.equal(ask(on, calls.socket, family), ALLOW);
    // The kernel takes an int: the upper half is ignored.
    assert.equal(ask(off, calls.socket, 0x1_0000_0001n), "EPERM");
  });

  test(`${arch}: no user namespace, however it is asked for`, () => {
    for (const program of [on, off]) {
      for (const number of [calls.clone, calls.unshare]) {
        assert.equal(ask(program, number, 0x10000000n), "EPERM");
        assert.equal(ask(program, number, 0x10000000n | 0x11n | 0x20000000n), "EPERM");
        assert.equal(ask(program, number, 0x11n), ALLOW);
      }
      assert.equal(ask(program, 435), "ENOSYS");
    }
  });

  test(`${arch}: injecting terminal input is refused, whatever the upper half of the request says`, () => {
    for (const request of [0x5412n, 0xffffffff_00005412n, 0x541cn])
      assert.equal(ask(on, calls.ioctl, 0n, request), "EPERM");
    assert.equal(ask(on, calls.ioctl, 0n, 0x5413n), ALLOW);
  });

  test(`${arch}: other processes, io_uring and keys are out of reach`, () => {
    for (const number of [calls.ptrace, 425, 426, 427, 438]) assert.equal(ask(on, number), "EPERM");
  });

  test(`${arch}: another architecture's call is refused`, () => {
    for (const audit of [0x40000003, 0x40000028, arch === "x64" ? 0xc00000b7 : 0xc000003e])
      assert.equal(judge(on, { number: calls.read, arch: audit }), "kill");
    if (arch === "x64") {
      assert.equal(ask(on, 0x40000000), "EPERM");
      assert.equal(ask(on, 0xffffffff), "EPERM");
    }
  });

  test(`${arch}: every other call is let through, whatever its arguments`, () => {
    const denied = new Set([calls.socket, calls.clone, calls.unshare, calls.ioctl]);
    fc.assert(
      fc.property(
        fc.nat(600),
        fc.array(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), { maxLength: 6 }),
        (number, args) => {
          if (denied.has(number)) return;
          // What a call gets depends on its number alone.
          assert.equal(ask(off, number, ...args), ask(off, number));
          assert.equal(ask(off, number), ask(on, number));
        },
      ),
    );
    assert.equal(ask(off, calls.read), ALLOW);
  });
}

test("a machine without a table has no filter, and so no walls", () => {
  assert.deepEqual([filterArch("x64"), filterArch("arm64"), filterArch("riscv64")], ["x64", "arm64", null]);
});
