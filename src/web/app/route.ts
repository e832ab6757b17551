import { useEffect, useState } from "preact/hooks";

/** Current route of the console. Stored in the URL fragment, so that it survives a reload and can be shared. */
export type Route =
  | { page: "processes" }
  | { page: "process"; handle: string }
  | { page: "jobs" }
  | { page: "job"; jobId: string }
  | { page: "row"; jobId: string; itemId: string }
  | { page: "server" }
  | { page: "devices" }
  | { page: "access" }
  /** The fragment names no page. */
  | { page: "unknown"; path: string };

/** Section of the navigation. */
export type Section = "processes" | "jobs" | "server";

/** Returns the section that a route belongs to, or null for a page outside of the sections. */
export function sectionOf({ page }: Route): Section | null {
  switch (page) {
    case "unknown":
    case "devices":
    case "access":
      return null;
    case "process":
    case "processes":
      return "processes";
    case "jobs":
    case "job":
    case "row":
      return "jobs";
    case "server":
      return "server";
  }
}

/** Pages without parameters. */
const PAGES = ["processes", "jobs", "server", "devices", "access"] as const;

export function parseRoute(fragment: string): Route {
  const path = fragment.replace(/^#/, "");
  const [, first = "", second = "", third = ""] = path.split("/").map(decodePart);
  if (first === "process" && /^[a-z2-7]{12}$/.test(second)) return { page: "process", handle: second };
  if (first === "job" && second !== "" && third !== "") return { page: "row", jobId: second, itemId: third };
  if (first === "job" && second !== "") return { page: "job", jobId: second };
  if (second !== "") return { page: "unknown", path };
  const page = PAGES.find((known) => known === first);
  if (page) return { page };
  return first === "" ? { page: "processes" } : { page: "unknown", path };
}

export function toHref(route: Route): string {
  switch (route.page) {
    case "process":
      return `#/process/${route.handle}`;
    case "job":
      return `#/job/${encodeURIComponent(route.jobId)}`;
    case "row":
      return `#/job/${encodeURIComponent(route.jobId)}/${encodeURIComponent(route.itemId)}`;
    case "unknown":
      return `#${route.path}`;
    default:
      return `#/${route.page}`;
  }
}

/** Returns the part unchanged if it cannot be decoded, because a user may have typed the URL. */
function decodePart(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const onHashChange = () => setRoute(parseRoute(location.hash));
    addEventListener("hashchange", onHashChange);
    return () => removeEventListener("hashchange", onHashChange);
  }, []);
  return route;
}
