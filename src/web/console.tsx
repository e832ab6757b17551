import { render } from "preact";
import "@xterm/xterm/css/xterm.css";
import "./console.css";
import { Console } from "./app/console-frame.tsx";

const root = document.getElementById("console");
if (root) render(<Console />, root);
