/** Figures and states as a person reads them. */

export function age(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(count: number): string {
  const at = count < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log2(count) / 10));
  const value = count / 1024 ** at;
  return `${at === 0 ? Math.round(value) : value.toFixed(1)} ${UNITS[at]}`;
}

export function count(number: number): string {
  return number.toLocaleString("en");
}

const CENTS = new Intl.NumberFormat("en", { style: "currency", currency: "USD" });
/** Small sums have enough digits to tell them from nothing. */
const FRACTIONS = new Intl.NumberFormat("en", {
  style: "currency",
  currency: "USD",
  maximumSignificantDigits: 2,
});

/** Nothing where the price is not known. */
export function money(usd: number | null): string {
  if (usd === null) return "";
  return (usd === 0 || usd >= 0.1 ? CENTS : FRACTIONS).format(usd);
}

export function state(listing: { running: boolean; exitCode: number | null; signal: string | null }): string {
  if (listing.running) return "running";
  if (listing.signal !== null) return `ended by ${listing.signal}`;
  return listing.exitCode === null ? "lost" : `exited with ${listing.exitCode}`;
}

/** A command line as it would be typed, without control characters. */
export function commandLine(argv: readonly string[]): string {
  return argv
    .map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`))
    .join(" ")
    .replace(/\p{Cc}/gu, "\u{fffd}");
}
