//! The four samples of the original form (docs/semantics.md, S9) and its older plugin, then those of the plugins' READMEs.

pub(crate) const BY_TYPE: &str = ".:53 {
   metadata
   request
   expression rule
   firewall . query {
      rule permit in-cidr([request/client_ip], 172.23.0.0/16) and ([request/qtype] == 'A')
      rule permit request/qtype == 'TXT'
      rule deny true
   }
} 
";

pub(crate) const BY_TYPE_SHORT: &str = ".:53 {
   metadata
   request
   firewall . query {
      permit in-cidr([request/client_ip], 172.23.0.0/16) and (request/qtype == 'A')
      permit request/qtype == 'TXT'
      deny true
   }
} 
";

pub(crate) const BY_EDNS0: &str = ".:53 {
   metadata
   request {
      edns0 0xffed client_id      
      edns0 0xffee group_id hex 16 0 16      
   }
   firewall . query {
      permit request/client_id ~= 'infoblox'
      deny true
   }
   firewall . response {
      permit inc-cidr(request/returned_ip, 10.0.0.0/8)
      deny true
   }
} 
";

pub(crate) const ENGINES: &str = ".:53 {
   request {
      edns0 0xffed client_id      
      edns0 0xffee group_id      
   }
   themis permission-client {
      endpoint 10.0.0.7:1234, 10.0.0.8:1234
      attr client-id string request/client_id
      streams 100
   }
   themis permission-domain {
      file /home/root/policy-file-domain 
      attr domain string request/qname
   }
   themis permission-ip {
      file /home/root/policy-file-ip 
      attr ip string request/returned_ip
      transfer gid uid
   }
   kubernetes { ... 
   }
   opa opa-permission-ip {
   }
   firewall . query {
      themis permission-client
      themis permission-domain
      permit request/client_id ~= 'infoblox'      
      deny true

      # sample for kubernetes label related rules      
      permit k8s/clientpod.security > level4
      
      # k8s could be an Polcy Engine that filter based on RBAC
      kubernetes rbac
   }
   firewall . response {
      themis permission-domain
      deny true
   }
   load-balancer {
       
   }
} 
";

pub(crate) const POLICY: &str = ".:53 {
policy {
    endpoint 10.0.0.7:1234, 10.0.0.8:1234
    edns0 0xffee client_id hex string 32 0 32
    edns0 0xffee group_id hex string 32 16 32
    edns0 0xffef uid // equal edns0 0xffef uid hex string
    edns0 0xffea source_ip ip address
    edns0 0xffeb client_name bytes string
    debug_query_suffix debug.
    debug_id instance_1
    streams 100
    transfer gid uid
    passthrough mycompanyname.com. mycompanyname.org.
    log
}
}
";

pub(crate) const README_CLIENTS: &str = r". {
   firewall query {
      refuse client_ip == '10.120.1.11'
      allow client_ip =~ '10\.120\.0\..*'
      allow client_ip =~ '10\.120\.1\..*'
      drop true
   }
}
";

pub(crate) const README_NAMES: &str = r". {
   firewall query {
      allow name =~ 'example.com'
      allow name =~ 'google.com' && (type == 'A' || type == 'AAAA')
      block true
   }
}
";

pub(crate) const README_EDNS0: &str = r"example.org {
   metadata
   metadata_edns0 {
      group_id edns0 0xffed bytes
      client_id edns0 0xffee bytes
   }
   firewall query {
      refuse [metadata_edns0/client_id] != 'ABCDEF'
      refuse [metadata_edns0/group_id] != '123456789'
      allow true
   }
}
";

pub(crate) const README_FIRST_EDNS0: &str = r"example.org {
   metadata {
      group_id edns0 0xffed bytes
      client_id edns0 0xffee bytes
   }
   firewall query {
      refuse [metadata/client_id] != 'ABCDEF'
      refuse [metadata/group_id] != '123456789'
      block true
   }
   firewall response {
      refuse  response_ip =~ '172.217.*'   # refuse any IP that is in 172.217.0.0/16
      allow true
   }
}
";

pub(crate) const README_OPA: &str = r". {
  opa myengine {
        endpoint http://127.0.0.1:8181/v1/data/dns/action
  }

  firewall query {
    opa myengine
  }
}
";

pub(crate) const README_THEMIS: &str = r". {
  themis myengine {
    endpoint 10.0.0.7:1234 10.0.0.8:1234
    attr client_id request/client_id
    attr group_id request/group_id
    attr uid request/another_id
    attr source_ip request/source_ip address 
    attr client_name request/client_name
    debug_query_suffix debug.
    debug_id instance_1
    streams 100
    transfer gid uid
    log
  }

  firewall query {
    themis myengine
  }
}
";

pub(crate) const README_ANY: &str = r". {
  firewall query {
    themis myengine
  }
   
  themis myengine {
    ...
  }
}
";
