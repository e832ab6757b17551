import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { hostForOthers, localBrowserUrl, withHost } from "../../../src/server/listen/console-hosts.ts";

describe("the login URL of a server on all network interfaces", () => {
  test("has a loopback address for a browser on the same host", () => {
    assert.equal(localBrowserUrl("http://0.0.0.0:7070"), "http://127.0.0.1:7070");
    assert.equal(localBrowserUrl("https://[::]:7443"), "https://[::1]:7443");
    assert.equal(localBrowserUrl("http://127.0.0.2:7070"), "http://127.0.0.2:7070");
    assert.equal(withHost("https://0.0.0.0:7443", "[2001:db8::1]"), "https://[2001:db8::1]:7443");
  });

  test("has an allowed name or an address of a network interface for other hosts", () => {
    const address = (text: string, family: "IPv4" | "IPv6", internal = false) => {
      const common = { address: text, netmask: "", mac: "", internal, cidr: null };
      return family === "IPv6" ? { ...common, family, scopeid: 0 } : { ...common, family };
    };
    const interfaces = {
      lo: [address("127.0.0.1", "IPv4", true), address("::1", "IPv6", true)],
      eth0: [address("fe80::1", "IPv6"), address("192.0.2.7", "IPv4"), address("2001:db8::7", "IPv6")],
    };
    const listen = (host: string) => ({ type: "websocket", host, port: 7070 }) as const;
    assert.equal(hostForOthers(listen("0.0.0.0"), [], interfaces), "192.0.2.7");
    assert.equal(hostForOthers(listen("::"), [], interfaces), "[2001:db8::7]");
    assert.equal(hostForOthers(listen("::"), [], { eth0: [address("192.0.2.7", "IPv4")] }), "192.0.2.7");
    assert.equal(hostForOthers(listen("0.0.0.0"), ["build.example"], interfaces), "build.example");
    assert.equal(hostForOthers(listen("0.0.0.0"), [], { lo: interfaces.lo }), null);
    assert.equal(hostForOthers(listen("127.0.0.1"), ["build.example"], interfaces), null);
    assert.equal(hostForOthers({ type: "unix", path: "/run/x" }, [], interfaces), null);
  });
});
