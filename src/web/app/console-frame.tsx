import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { JobPage } from "../jobs/job-page.tsx";
import { JobsPage } from "../jobs/jobs-page.tsx";
import { RowView } from "../jobs/row-page.tsx";
import { ProcessPage } from "../processes/process-page.tsx";
import { ProcessesPage } from "../processes/processes-page.tsx";
import { type ShareLink, takeShareLink, tokenProtocols } from "../processes/share-link.ts";
import { ServerPage } from "../server/server-page.tsx";
import { hrefOf, type Route, useRoute } from "./route.ts";
import { fetchIdentity, type Identity, type IdentityResult, signIn, signOut, takeToken } from "./sign-in.ts";
import { useClient } from "./use-client.ts";

/** Shows the one process of a share link, or signs in. */
export function Console() {
  const [share] = useState(takeShareLink);
  return share ? <Guest share={share} /> : <SignedIn />;
}

/** View of a guest: one process, without navigation. */
function Guest({ share }: { share: ShareLink }) {
  const [protocols] = useState(() => tokenProtocols(share.token));
  const link = useClient(protocols);
  if (link.type === "connecting") return <CenteredMessage>Connecting…</CenteredMessage>;
  if (link.type === "failed") {
    return (
      <CenteredMessage isAlert>
        This link does not work, or no longer: its time may be over, or the process has ended.
      </CenteredMessage>
    );
  }
  return (
    <>
      <header>
        <strong>procwire</strong>
        <span>a process that was shared with you</span>
        <span class="spacer" />
        <output aria-live="polite">
          {link.type === "reconnecting" ? "connection lost, reconnecting…" : ""}
        </output>
      </header>
      <main>
        <ProcessPage client={link.client} handle={share.handle} guest={share.role} />
      </main>
    </>
  );
}

/** Signs in with the token in the URL, or asks the user for a token, then shows the console. */
function SignedIn() {
  const [asked, setAsked] = useState<IdentityResult | { type: "asking" }>({ type: "asking" });
  const [problem, setProblem] = useState<string | null>(null);
  const enter = async (token: string | null) => {
    const refused = token === null ? null : await signIn(token);
    const found = await fetchIdentity();
    setAsked(found);
    setProblem(found.type === "me" ? null : refused);
  };
  useEffect(() => {
    // A failure is stored in the state.
    void enter(takeToken());
  }, []);
  switch (asked.type) {
    case "asking":
      return <CenteredMessage>Connecting…</CenteredMessage>;
    case "unreachable":
      return (
        <CenteredMessage>The server cannot be reached. Reload the page when it runs again.</CenteredMessage>
      );
    case "nobody":
      return <SignIn problem={problem} onToken={(token) => void enter(token)} />;
    case "me":
      return <Frame me={asked.me} />;
  }
}

/** All there is to say while nothing else can be shown. */
function CenteredMessage({ isAlert = false, children }: { isAlert?: boolean; children: ComponentChildren }) {
  return (
    <main class="sign-in">
      <h1>procwire</h1>
      <p role={isAlert ? "alert" : undefined}>{children}</p>
    </main>
  );
}

function SignIn({ problem, onToken }: { problem: string | null; onToken: (token: string) => void }) {
  const [token, setToken] = useState("");
  return (
    <main class="sign-in">
      <h1>procwire</h1>
      <p>
        Open the address that the server printed when it started, or paste its token. An address works once.
      </p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (token.trim() !== "") onToken(token.trim());
        }}
      >
        <label>
          Token
          <input
            type="password"
            autocomplete="off"
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
          />
        </label>
        <button type="submit">Sign in</button>
      </form>
      {problem !== null && <p role="alert">{problem}</p>}
    </main>
  );
}

function Frame({ me }: { me: Identity }) {
  const route = useRoute();
  const link = useClient();
  if (link.type === "connecting") return <CenteredMessage>Connecting…</CenteredMessage>;
  if (link.type === "failed") return <CenteredMessage isAlert>{link.reason}</CenteredMessage>;
  const { client } = link;
  return (
    <>
      <header>
        <strong>procwire</strong>
        <nav aria-label="Pages">
          <NavLink to={{ page: "processes" }} route={route}>
            Processes
          </NavLink>
          <NavLink to={{ page: "jobs" }} route={route}>
            Jobs
          </NavLink>
          <NavLink to={{ page: "server" }} route={route}>
            Server
          </NavLink>
        </nav>
        <span class="spacer" />
        <output aria-live="polite">
          {link.type === "reconnecting" ? "connection lost, reconnecting…" : ""}
        </output>
        <span title="who this page acts for">
          {me.id}
          {me.role === "operator" ? " (operator)" : ""}
        </span>
        <button type="button" onClick={() => void signOut()}>
          Sign out
        </button>
      </header>
      <main>
        {route.page === "processes" && <ProcessesPage client={client} me={me} />}
        {route.page === "process" && <ProcessPage key={route.handle} client={client} handle={route.handle} />}
        {route.page === "jobs" && <JobsPage />}
        {route.page === "job" && <JobPage key={route.jobId} jobId={route.jobId} />}
        {route.page === "row" && (
          <RowView
            key={`${route.jobId}/${route.itemId}`}
            client={client}
            jobId={route.jobId}
            itemId={route.itemId}
          />
        )}
        {route.page === "server" && <ServerPage client={client} />}
      </main>
    </>
  );
}

function NavLink({ to, route, children }: { to: Route; route: Route; children: ComponentChildren }) {
  return (
    <a href={hrefOf(to)} aria-current={to.page === route.page ? "page" : undefined}>
      {children}
    </a>
  );
}
