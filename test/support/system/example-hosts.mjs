/** Preloaded with `NODE_OPTIONS=--import=…`: resolves the example host names of the documents to this host. */
import dns from "node:dns";

const { lookup } = dns;
dns.lookup = (name, ...rest) => lookup(name.endsWith(".example") ? "127.0.0.1" : name, ...rest);
