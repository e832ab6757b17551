import { useEffect, useState } from "preact/hooks";

/** Current route of the console. Stored in the URL fragment, so that it survives a reload and can be shared. */
export type Route =
  | { page: "processes" }
  | { page: "process"; handle: string }
  | { page: "jobs" }
  | { page: "job"; jobId: string }
  | { page: "row"; jobId: string; itemId: string }
  | { page: "server" };

export function parseRoute(fragment: string): Route {
  const [, first = "", second = "", third = ""] = fragment.replace(/^#/, "").split("/").map(decodePart);
  if (first === "process" && /^[a-z2-7]{12}$/.test(second)) return { page: "process", handle: second };
  if (first === "job" && second !== "" && third !== "") return { page: "row", jobId: second, itemId: third };
  if (first === "job" && second !== "") return { page: "job", jobId: second };
  if (first === "jobs" || first === "server") return { page: first };
  return { page: "processes" };
}

export function toHref(route: Route): string {
  switch (route.page) {
    case "process":
      return `#/process/${route.handle}`;
    case "job":
      return `#/job/${encodeURIComponent(route.jobId)}`;
    case "row":
      return `#/job/${encodeURIComponent(route.jobId)}/${encodeURIComponent(route.itemId)}`;
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
