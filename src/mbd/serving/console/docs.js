// The description of the HTTP interface by Swagger UI. Who is signed in to the console in this tab is signed in here, too.
"use strict";

const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();

const ui = SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#docs",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  docExpansion: "list",
  syntaxHighlight: { activated: false },
  validatorUrl: null,
  onComplete: () => {
    const token = sessionStorage.getItem("mbd-token");
    if (token) ui.preauthorizeApiKey("HTTPBearer", token);
  },
});
