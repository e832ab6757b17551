import { lookup } from "node:dns";
import { isIP } from "node:net";

/** Longest wait for the addresses of a name. */
const LOOKUP_TIMEOUT_MS = 2000;

/** Returns all addresses of a host; none if it has none, on an error, and after two seconds. Never rejects. */
export type LookupAddresses = (host: string) => Promise<readonly string[]>;

/** Asks the resolver of the system, which also reads the hosts file. */
export const lookupAddresses: LookupAddresses = (host) =>
  new Promise((resolve) => {
    if (isIP(host) > 0) {
      resolve([host]);
      return;
    }
    const timer = setTimeout(() => resolve([]), LOOKUP_TIMEOUT_MS);
    timer.unref();
    lookup(host, { all: true, order: "verbatim" }, (error, addresses) => {
      clearTimeout(timer);
      resolve(error ? [] : addresses.map(({ address }) => address));
    });
  });
