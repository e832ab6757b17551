import { closeSync, writeSync } from "node:fs";
import { getSystemErrorName } from "node:util";
import type { Clock } from "../../async/clock.ts";
import { getErrorCode } from "../../base/error-code.ts";
import { twoDigits } from "../../base/text/format-age.ts";
import type { AuditSystem } from "./audit-file.ts";

/** Destination of the second copy of each line. */
export interface AuditSinkAddress {
  /** `syslog` adds the header of a local syslog message. */
  type: "unix" | "syslog";
  /** Path of the datagram socket. */
  path: string;
}

const SYSLOG_SOCKET = "/dev/log";
const UNIX_SCHEME = "unix://";

/** Parses the value of `--audit-sink`. Returns null if it is neither `syslog` nor `unix:///PATH`. */
export function parseSinkAddress(text: string): AuditSinkAddress | null {
  if (text === "syslog") return { type: "syslog", path: SYSLOG_SOCKET };
  const path = text.startsWith(UNIX_SCHEME) ? text.slice(UNIX_SCHEME.length) : "";
  return path.startsWith("/") ? { type: "unix", path } : null;
}

/** Interval of connection attempts to a missing receiver. */
const RECONNECT_INTERVAL_MS = 1_000;
/** Facility authpriv (10) and severity info (6): `10 * 8 + 6`. Most systems store authpriv in a file of root. */
const SYSLOG_PRIORITY = 86;

/** The second sink: sends each line as one datagram, never waits, and counts the lines that it drops. */
export class AuditSink {
  readonly #address: AuditSinkAddress;
  readonly #system: AuditSystem;
  readonly #clock: Clock;
  #fd: number | null = null;
  #retryAtMs = Number.NEGATIVE_INFINITY;
  #dropped = 0;
  #failure: string | null = null;

  constructor(address: AuditSinkAddress, system: AuditSystem, clock: Clock) {
    this.#address = address;
    this.#system = system;
    this.#clock = clock;
  }

  /** Number of lines that were not sent. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Name of the system error of the last line; null if the sink received it. */
  get failure(): string | null {
    return this.#failure;
  }

  get path(): string {
    return this.#address.path;
  }

  send(line: string): void {
    const failure = this.#trySend(line);
    this.#failure = failure;
    if (failure !== null) this.#dropped++;
  }

  close(): void {
    if (this.#fd !== null) closeSync(this.#fd);
    this.#fd = null;
  }

  /** Returns null, or the name of the system error. Connects again once if the receiver was restarted. */
  #trySend(line: string): string | null {
    const hadSocket = this.#fd !== null;
    const failure = this.#connect() ?? this.#write(line);
    if (failure === null || failure === "EAGAIN" || failure === "EMSGSIZE" || !hadSocket) return failure;
    this.close();
    return this.#connect() ?? this.#write(line);
  }

  #connect(): string | null {
    if (this.#fd !== null) return null;
    if (this.#clock.monotonic() < this.#retryAtMs) return this.#failure ?? "ENOTCONN";
    const opened = this.#system.connectDatagram(this.#address.path);
    if (typeof opened === "number") {
      this.#retryAtMs = this.#clock.monotonic() + RECONNECT_INTERVAL_MS;
      return getSystemErrorName(-opened);
    }
    [this.#fd] = opened;
    return null;
  }

  #write(line: string): string | null {
    if (this.#fd === null) return "ENOTCONN";
    try {
      writeSync(this.#fd, this.#address.type === "syslog" ? this.#syslogMessage(line) : line);
      return null;
    } catch (error) {
      return getErrorCode(error) ?? "EIO";
    }
  }

  /** Returns a message as syslog(3) sends it: RFC 3164 without host name, in local time. */
  #syslogMessage(line: string): string {
    const date = new Date(this.#clock.now());
    const day = String(date.getDate()).padStart(2);
    const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map(twoDigits);
    const header = `<${SYSLOG_PRIORITY}>${MONTHS[date.getMonth()]} ${day} ${time.join(":")}`;
    return `${header} procwire[${process.pid}]: ${line}`;
  }
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
