/** Requests to the network proxy whose responses must equal those of the Codex exec-server. */

export interface NetworkStep {
  name: string;
  listener: "http" | "socks";
  /** Bytes as Latin-1 text. */
  sent: string;
  /** The step ends when the response matches; absent: at the end of the stream. */
  until?: string | undefined;
  /** Leaves the connection open for the next step. */
  keepsOpen?: true;
}

export const DOMAINS = {
  "good.test": "allow",
  "*.good.test": "allow",
  "bad.good.test": "deny",
  "93.184.216.35": "allow",
  "10.1.2.3": "allow",
  "priv.test": "allow",
  "loop.test": "allow",
  "mixed.test": "allow",
  "nxdomain.test": "allow",
} as const;

/** Addresses of the names in the test network. Other names do not exist. */
export const ADDRESSES: Readonly<Record<string, readonly string[]>> = {
  "good.test": ["93.184.216.34"],
  "www.good.test": ["93.184.216.34"],
  "deep.www.good.test": ["93.184.216.34"],
  "bad.good.test": ["93.184.216.34"],
  "other.test": ["93.184.216.34"],
  "priv.test": ["10.1.2.3"],
  "loop.test": ["127.0.0.1"],
  "mixed.test": ["93.184.216.34", "10.1.2.3"],
};
export const LOCAL_ADDRESSES = ["93.184.216.34", "93.184.216.35", "10.1.2.3", "127.0.0.53"];

export function http(name: string, target: string, { method = "GET", headers = "", body = "" } = {}): NetworkStep {
  return { name, listener: "http", sent: `${method} ${target} HTTP/1.1\r\n${headers}Connection: close\r\n\r\n${body}` };
}

/** A request without `Connection: close`, so that the next step uses its connection. */
function keepAlive(name: string, target: string): NetworkStep {
  const until = "[Ll]ength: \\d+\r\n.*[\n}]$|hunked\r\n.*\r\n0\r\n\r\n$";
  return { name, listener: "http", sent: `GET ${target} HTTP/1.1\r\n\r\n`, until, keepsOpen: true };
}

export function connect(target: string, sent = ""): NetworkStep {
  const until = sent === "" ? "\r\n\r\n.*$" : `ECHO:${sent}$`;
  return { name: `CONNECT ${target}`, listener: "http", sent: `CONNECT ${target} HTTP/1.1\r\n\r\n${sent}`, until };
}

export function socks(
  name: string,
  host: string,
  port: number,
  { command = 1, sent = "", until = "^.{12}" } = {},
): NetworkStep {
  const bytes = [5, 1, 0, 5, command, 0, 3, host.length, ...Buffer.from(host), port >> 8, port & 255];
  return { name, listener: "socks", sent: String.fromCharCode(...bytes) + sent, until };
}

export const STEPS: readonly NetworkStep[] = [
  http("allowed", "http://good.test/x"),
  http("allowed, upper case and dot", "http://GOOD.test./x", {
    method: "POST",
    headers: "Content-Length: 3\r\n",
    body: "abc",
  }),
  http("allowed sub-domain and port", "http://www.good.test:8080/"),
  http("allowed deep sub-domain", "http://deep.www.good.test/"),
  http("denied", "http://bad.good.test/"),
  http("not allowed", "http://other.test/"),
  http("address, not allowed", "http://93.184.216.34/"),
  http("address, allowed", "http://93.184.216.35/"),
  http("private address, allowed", "http://10.1.2.3/"),
  http("private address, not allowed", "http://192.168.7.7/"),
  http("link-local address", "http://169.254.169.254/"),
  http("loopback address", "http://127.0.0.1:18000/"),
  http("localhost", "http://localhost:18000/"),
  http("IPv6 loopback address", "http://[::1]:18000/"),
  http("name with a private address", "http://priv.test/"),
  http("name with a loopback address", "http://loop.test:18000/"),
  http("name with a public and a private address", "http://mixed.test/"),
  http("unknown name", "http://nxdomain.test/"),
  http("refused by the destination", "http://good.test:81/"),
  http("Host header of another host", "http://good.test/", { headers: "Host: other.test\r\n" }),
  http("origin form", "/x", { headers: "Host: good.test\r\n" }),
  http("Host header with a port", "http://good.test/", { headers: "Host: good.test:80\r\n" }),
  http("Host header in upper case", "http://good.test/", { headers: "Host: GOOD.test\r\n" }),
  http("Host header with a dot", "http://good.test/", { headers: "Host: good.test.\r\n" }),
  http("origin form with a port", "/x", { headers: "Host: www.good.test:8080\r\n" }),
  http("https URL, no TLS", "https://good.test/"),
  http("x-unix-socket", "http://good.test/", { headers: "x-unix-socket: /tmp/x\r\n" }),
  connect("good.test:443", "ping"),
  { ...connect("good.test:81"), until: undefined },
  connect("other.test:443"),
  connect("bad.good.test:443"),
  connect("127.0.0.1:18000"),
  connect("priv.test:80"),
  socks("SOCKS5 allowed", "good.test", 443, { sent: "ping", until: "ECHO:ping$" }),
  socks("SOCKS5 not allowed", "other.test", 443),
  socks("SOCKS5 denied", "bad.good.test", 443),
  socks("SOCKS5 private", "priv.test", 80),
  socks("SOCKS5 refused by the destination", "good.test", 81),
  socks("SOCKS5 BIND", "good.test", 443, { command: 2 }),
  { name: "SOCKS5 authentication only", listener: "socks", sent: "\x05\x01\x02", until: "^.{2}" },
  { name: "SOCKS4", listener: "socks", sent: "\x04\x01\x00\x50\x01\x02\x03\x04\x00" },
];

/** Steps of a process whose client decides: it allows `other.test` alone. */
export const ASKING_STEPS: readonly NetworkStep[] = [
  http("asked, allowed", "http://other.test/"),
  http("asked, denied", "http://good.test/"),
  http("private address, not asked", "http://10.1.2.3/"),
  socks("SOCKS5 asked, allowed", "other.test", 443, { sent: "ping", until: "ECHO:ping$" }),
  socks("SOCKS5 asked, denied", "good.test", 443),
];

/** Steps in mode `limited`. */
export const LIMITED_STEPS: readonly NetworkStep[] = [
  ...["GET", "OPTIONS", "POST", "DELETE"].map((method) => http(`limited ${method}`, "http://good.test/", { method })),
  connect("good.test:443"),
  connect("other.test:443"),
  socks("SOCKS5 to 443", "good.test", 443),
  socks("SOCKS5 to 80", "good.test", 80),
];

/** Steps of a process whose policy asks about allowed hosts: the client allows `other.test` alone. */
export const REVIEW_STEPS: readonly NetworkStep[] = [
  http("reviewed, allowed", "http://other.test/"),
  http("reviewed, denied", "http://good.test/"),
  http("not reviewed", "http://www.good.test/"),
];

/** Requests on one connection: the proxy decides about each. */
export const KEEP_ALIVE_STEPS: readonly NetworkStep[] = [
  keepAlive("first on a connection, allowed", "http://good.test/1"),
  keepAlive("second, another allowed host", "http://www.good.test/2"),
  keepAlive("third, denied", "http://bad.good.test/3"),
  keepAlive("fourth, not allowed", "http://other.test/4"),
  http("last, allowed", "http://good.test/5"),
];

/** Steps of a server with an upstream proxy. The policy allows the private and the loopback address. */
export const UPSTREAM_STEPS: readonly NetworkStep[] = [
  http("upstream, allowed", "http://good.test/x"),
  http("upstream, Host header", "http://good.test/y", { headers: "Host: good.test\r\n" }),
  http("upstream, Host header with a port", "http://good.test/z", { headers: "Host: good.test:80\r\n" }),
  http("upstream, denied", "http://bad.good.test/"),
  http("upstream, unknown name", "http://nxdomain.test/"),
  http("upstream, private address", "http://10.1.2.3/"),
  http("upstream, loopback address", "http://127.0.0.1:18000/"),
  connect("good.test:443", "ping"),
  connect("10.1.2.3:443", "ping"),
  socks("upstream, SOCKS5", "good.test", 443, { sent: "ping", until: "ECHO:ping$" }),
];
